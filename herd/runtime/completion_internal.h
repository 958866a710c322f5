// Completion is a job without a lane that runs once some events are done: it releases what operations read that a lane
// has only started. No thread waits for it: whichever asks whether it is done runs it, if the events are done.
// Threads: done() and wait() from any.
#pragma once

#include <mutex>

#include "herd/runtime/lane.h"

namespace herd::runtime {

class Completion final : public Event {
 public:
  // `job` must not wait for this completion, and starts nothing that ends later: it returns null.
  Completion(std::vector<EventPtr> after, Job job) : after_(std::move(after)), job_(std::move(job)) {}
  bool done() const override;
  void wait() override;                         // rethrows what the job, or one of the events, threw
  Clock::time_point ended_at() const override;  // returns when the last of the events ended

 private:
  std::vector<EventPtr> after() const;

  mutable std::mutex mutex_;
  mutable std::vector<EventPtr> after_;  // empty once the job has run
  mutable Job job_;                      // empty once it has run
  mutable std::exception_ptr error_;
  mutable Clock::time_point ended_at_ = Clock::now();
};

}  // namespace herd::runtime
