#include "herd/runtime/lane.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace herd::runtime {
namespace {

// Reports the end of a lane's job. It is done once the job has thrown. Otherwise it is done once the job has returned,
// the operation that it started is done, and so is the previous job of the lane. It holds no lock while it calls
// another event.
class JobEvent final : public Event {
 public:
  explicit JobEvent(std::shared_ptr<JobEvent> previous) : previous_(std::move(previous)) {}

  bool done() const override {
    const Snapshot current = snapshot();
    return current.returned && (current.error || ((!current.previous || current.previous->done()) &&
                                                  (!current.operation || current.operation->done())));
  }
  void wait() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return returned_; });
    }
    const Snapshot current = snapshot();
    if (current.error) std::rethrow_exception(current.error);
    if (current.previous) current.previous->wait();
    if (current.operation) current.operation->wait();
    std::lock_guard lock(mutex_);
    previous_ = nullptr;  // a long run must not keep a long chain of events
  }
  Clock::time_point ended_at() const override {
    const Snapshot current = snapshot();
    return current.operation ? current.operation->ended_at() : current.returned_at;
  }
  // Says whether the job or its operation failed. REQUIRES done().
  bool failed() {
    try {
      wait();
      return false;
    } catch (...) {
      return true;
    }
  }
  // Throws the error of an earlier job of the lane if it is known.
  void refuse_after_failure() const {
    const auto last = previous();
    if (last && last->done()) last->wait();
  }
  std::shared_ptr<JobEvent> previous() const { return snapshot().previous; }
  void finish(EventPtr operation, std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    operation_ = std::move(operation);
    error_ = error;
    returned_at_ = Clock::now();
    returned_ = true;
    changed_.notify_all();
  }

 private:
  struct Snapshot {
    bool returned;
    std::shared_ptr<JobEvent> previous;
    EventPtr operation;
    std::exception_ptr error;
    Clock::time_point returned_at;
  };
  Snapshot snapshot() const {
    std::lock_guard lock(mutex_);
    return {returned_, previous_, operation_, error_, returned_at_};
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  std::shared_ptr<JobEvent> previous_;
  EventPtr operation_;
  std::exception_ptr error_;
  Clock::time_point returned_at_;
};

void wait_quietly(Event& event) {
  try {
    event.wait();
  } catch (...) {  // the events that depend on it throw it again
  }
}

void wait_quietly_all(std::shared_ptr<JobEvent> last) {
  for (; last; last = last->previous()) wait_quietly(*last);  // a job that threw did not wait for earlier ones
}

// Makes the event of a lane's next job; `last` is the event of the previous one.
std::shared_ptr<JobEvent> next_event(std::shared_ptr<JobEvent>& last) {
  if (last && last->done()) wait_quietly(*last);  // it drops the events of earlier jobs
  return last = std::make_shared<JobEvent>(last);
}

void run_job(const std::vector<EventPtr>& after, const Job& job, JobEvent& event) {
  try {
    event.refuse_after_failure();
    for (const EventPtr& earlier : after) earlier->wait();
    event.finish(job(), nullptr);
  } catch (...) {
    event.finish(nullptr, std::current_exception());
  }
}

// Reports the end of a job that has ended without error, as have all jobs before it on its lane.
class EndedEvent final : public Event {
 public:
  explicit EndedEvent(Clock::time_point at) : at_(at) {}
  bool done() const override { return true; }
  void wait() override {}
  Clock::time_point ended_at() const override { return at_; }

 private:
  Clock::time_point at_;
};

// Runs jobs on the calling thread. A pass over one token is many ops of microseconds, so a job without an error or an
// operation takes no lock.
class InlineLane final : public Lane {
 public:
  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    if (last_ && last_->done() && !last_->failed()) last_ = nullptr;
    if (last_ || !after.empty()) return submit_after(after, job);
    try {
      EventPtr operation = job();
      if (!operation) return std::make_shared<EndedEvent>(Clock::now());
      next_event(last_)->finish(std::move(operation), nullptr);
    } catch (...) {
      next_event(last_)->finish(nullptr, std::current_exception());
    }
    return last_;
  }
  void drain() override { wait_quietly_all(last_); }

 private:
  EventPtr submit_after(const std::vector<EventPtr>& after, const Job& job) {
    auto event = next_event(last_);
    run_job(after, job, *event);
    return event;
  }

  std::shared_ptr<JobEvent> last_;  // null if every job so far has ended without error
};

// Runs jobs on a thread of its own.
class ThreadLane final : public Lane {
 public:
  // `eager` lets the caller run a job itself while the queue is empty and nothing has to be waited for.
  ThreadLane(const std::string& name, bool eager) : name_(name.substr(0, 15)), eager_(eager) {}
  ~ThreadLane() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    std::unique_lock lock(mutex_);
    auto event = next_event(last_);
    if (eager_ && idle_ && all_done(after)) {
      run_job(after, job, *event);
      return event;
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    queue_.push_back({std::move(after), std::move(job), event});
    idle_ = false;
    changed_.notify_all();
    return event;
  }

  void drain() override {
    std::shared_ptr<JobEvent> last;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return idle_; });
      last = last_;
    }
    wait_quietly_all(last);
  }

 private:
  struct Entry {
    std::vector<EventPtr> after;
    Job job;
    std::shared_ptr<JobEvent> event;
  };

  static bool all_done(const std::vector<EventPtr>& after) {
    for (const EventPtr& earlier : after)
      if (!earlier->done()) return false;
    return true;
  }

  void serve() {
    pthread_setname_np(pthread_self(), name_.c_str());
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      run_job(entry.after, entry.job, *entry.event);
      entry = {};  // frees what the job held before the lane counts as idle
      lock.lock();
      idle_ = queue_.empty();
      if (idle_) changed_.notify_all();
    }
  }

  const std::string name_;
  const bool eager_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  bool idle_ = true;
  bool stop_ = false;
  std::shared_ptr<JobEvent> last_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Lane> inline_lane() { return std::make_unique<InlineLane>(); }
std::unique_ptr<Lane> thread_lane(const std::string& name) { return std::make_unique<ThreadLane>(name, false); }
std::unique_ptr<Lane> ready_lane(const std::string& name) { return std::make_unique<ThreadLane>(name, true); }

}  // namespace herd::runtime
