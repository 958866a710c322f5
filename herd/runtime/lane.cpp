#include "herd/runtime/lane.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace herd::runtime {
namespace {

// Set when the job has returned; done once the event it returned, if any, is done too.
class JobEvent final : public Event {
 public:
  bool done() const override {
    std::lock_guard lock(mutex_);
    return returned_ && (error_ || !rest_ || rest_->done());
  }
  void wait() override {
    EventPtr rest;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return returned_; });
      if (error_) std::rethrow_exception(error_);
      rest = rest_;
    }
    if (rest) rest->wait();
  }
  void finish(EventPtr rest, std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    rest_ = std::move(rest);
    error_ = error;
    returned_ = true;
    changed_.notify_all();
  }
  std::exception_ptr error() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  EventPtr rest_;
  std::exception_ptr error_;
};

void run_job(const std::vector<EventPtr>& after, const Job& job, JobEvent& event, std::exception_ptr& failed) {
  if (failed) return event.finish(nullptr, failed);
  try {
    for (const EventPtr& before : after) before->wait();
    event.finish(job(), nullptr);
  } catch (...) {
    failed = std::current_exception();
    event.finish(nullptr, failed);
  }
}

void settle(Event& event) {
  try {
    event.wait();
  } catch (...) {  // whoever depends on it hears of it
  }
}

class InlineLane final : public Lane {
 public:
  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    auto event = std::make_shared<JobEvent>();
    run_job(after, job, *event, failed_);
    last_ = event;
    return event;
  }
  void drain() override {
    if (last_) settle(*last_);
  }

 private:
  std::exception_ptr failed_;
  EventPtr last_;
};

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
    auto event = std::make_shared<JobEvent>();
    std::unique_lock lock(mutex_);
    last_ = event;
    if (eager_ && idle_ && ready(after)) {
      run_job(after, job, *event, failed_);
      return event;
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    queue_.push_back({std::move(after), std::move(job), event});
    idle_ = false;
    changed_.notify_all();
    return event;
  }

  void drain() override {
    std::shared_ptr<Event> last;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return idle_; });
      last = last_;
    }
    if (last) settle(*last);
  }

 private:
  struct Entry {
    std::vector<EventPtr> after;
    Job job;
    std::shared_ptr<JobEvent> event;
  };

  static bool ready(const std::vector<EventPtr>& after) {
    for (const EventPtr& before : after)
      if (!before->done()) return false;
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
      std::exception_ptr failed = failed_;
      lock.unlock();
      run_job(entry.after, entry.job, *entry.event, failed);
      entry = {};  // what the job held is free before the lane says that it is idle
      lock.lock();
      failed_ = failed;
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
  std::exception_ptr failed_;
  EventPtr last_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Lane> inline_lane() { return std::make_unique<InlineLane>(); }
std::unique_ptr<Lane> thread_lane(const std::string& name) { return std::make_unique<ThreadLane>(name, false); }
std::unique_ptr<Lane> ready_lane(const std::string& name) { return std::make_unique<ThreadLane>(name, true); }

}  // namespace herd::runtime
