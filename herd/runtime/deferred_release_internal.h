// Defines a job that runs on no lane, as soon as some events are done. It is the release of what operations read that a
// lane has only started. Nobody waits for it: whoever asks whether it is done runs it, if the events are done.
// Threads: any.
#pragma once

#include <mutex>

#include "herd/runtime/lane.h"

namespace herd::runtime {

class DeferredRelease final : public Event {
 public:
  // `job` must not wait for this completion, and must start nothing that ends later, so it returns null.
  DeferredRelease(std::vector<EventPtr> after, Job job) : after_(std::move(after)), job_(std::move(job)) {}
  // Runs the job if the events are done, or if the stream that computes waits for them already: what it frees is used
  // again in that stream's order. Returns whether the job has run.
  bool release();
  bool done() const override;                   // runs the job first if the events are done
  void wait() override;                         // waits for the events; throws what one of them, or the job, threw
  Clock::time_point ended_at() const override;  // returns when the last of the events ended

 private:
  std::vector<EventPtr> after() const;
  void run_job() const;

  mutable std::mutex mutex_;
  mutable std::vector<EventPtr> after_;  // empty once they are done and the job has run
  mutable Job job_;                      // empty once it has run
  mutable std::exception_ptr error_;
  mutable Clock::time_point ended_at_ = Clock::now();
};

}  // namespace herd::runtime
