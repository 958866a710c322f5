// A lane starts jobs first in, first out. An event is done when its job is, with all that the job started, and every
// job before it on the lane. So events end in the order of jobs, except that a job that throws is done at once. A job
// waits until earlier jobs of its lane have returned. It waits for an operation that one of them started only if told
// to wait for its event. The executor is written once over this interface; implementations differ in who does the work:
//   inline_lane    the calling thread, at once                      (CPU: compute)
//   thread_lane    one sleeping thread with a queue                 (CPU: copies, host arithmetic, files)
//   ready_lane     the calling thread where nothing has to be waited for, else the lane's own thread
//                  (CPU: jobs that only start an operation, such as a collective)
// Those of a device's streams are in device_lane.h: there jobs enqueue, and events are the device's.
// Threads: submit() and drain() from one thread; Event from any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace herd::runtime {

using Clock = std::chrono::steady_clock;

// An event is the end of a job. A job that failed is done, too: wait() throws what the job threw.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;
  // Lets what this thread enqueues on its current stream from here on wait for the end of the job. Only the start of
  // the job is waited for where that is on a device too; else it is wait().
  virtual void hold() { wait(); }
  // Tells whether the stream that computes waits for the end of the job, or is past it: what that stream does from here
  // on comes after it. False where the job failed.
  virtual bool held() const { return done(); }
  // Returns when the job itself began, where the device has noted it. REQUIRES done().
  virtual std::optional<Clock::time_point> began_at() const { return std::nullopt; }
  // Returns when the job itself ended, whenever that was observed, and however long jobs before it took. REQUIRES
  // done().
  virtual Clock::time_point ended_at() const = 0;
};
using EventPtr = std::shared_ptr<Event>;

// A lane runs jobs. A job that only starts something returns the event of its end; null means it ended on return.
using Job = std::function<EventPtr()>;

class Lane {
 public:
  virtual ~Lane() = default;
  // Starts `job` after every job submitted before, and after every event in `after`. The returned event carries what
  // the job threw. After a job, or what it started, has failed, later jobs do not run. If later jobs have run by then,
  // their events fail with the same exception.
  virtual EventPtr submit(std::vector<EventPtr> after, Job job) = 0;
  // Returns when every submitted job is done; throws nothing.
  virtual void drain() = 0;
};

std::unique_ptr<Lane> inline_lane();
std::unique_ptr<Lane> thread_lane(const std::string& name);  // debuggers show `name`
std::unique_ptr<Lane> ready_lane(const std::string& name);

}  // namespace herd::runtime
