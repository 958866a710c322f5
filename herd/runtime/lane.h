// A lane runs jobs first in, first out; between lanes an event says when a job is done. The executor is written once
// over this interface; the implementations differ in who does the work:
//   inline_lane    the calling thread, at once                      (CPU: compute)
//   thread_lane    one sleeping thread with a queue                 (CPU: copies, host arithmetic, files)
//   ready_lane     the calling thread where nothing has to be waited for, else the lane's own thread
//                  (CPU: jobs that only start an operation, such as a collective)
//   stream lanes   a device stream of c10 (stream_lane.h)           (CUDA)
// Threads: submit() and drain() from one thread; Event from any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace herd::runtime {

using Clock = std::chrono::steady_clock;

// The end of a job. A job that failed is done too: wait() rethrows what it threw.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;
};
using EventPtr = std::shared_ptr<Event>;

// What a lane runs. A job that only starts something returns the event of its end; null means it ended on return.
using Job = std::function<EventPtr()>;

class Lane {
 public:
  virtual ~Lane() = default;
  // Runs `job` after every job submitted before, and after every event in `after`. The returned event carries what the
  // job threw; once a job has failed, later ones of this lane are not run and fail with the same exception.
  virtual EventPtr submit(std::vector<EventPtr> after, Job job) = 0;
  // Returns when every submitted job is done; throws nothing.
  virtual void drain() = 0;
};

std::unique_ptr<Lane> inline_lane();
std::unique_ptr<Lane> thread_lane(const std::string& name);  // the thread's name, as debuggers show it
std::unique_ptr<Lane> ready_lane(const std::string& name);

}  // namespace herd::runtime
