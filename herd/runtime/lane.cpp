#include "herd/runtime/lane.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace herd::runtime {
namespace {

// Set when the job has returned; done once it has thrown, or else the job before it on the lane is done and what it
// started is. No lock is held while another event is asked.
class JobEvent final : public Event {
 public:
  explicit JobEvent(std::shared_ptr<JobEvent> before) : before_(std::move(before)) {}

  bool done() const override {
    const Look look = look_now();
    return look.returned &&
           (look.error || ((!look.before || look.before->done()) && (!look.rest || look.rest->done())));
  }
  void wait() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return returned_; });
    }
    const Look look = look_now();
    if (look.error) std::rethrow_exception(look.error);
    if (look.before) look.before->wait();
    if (look.rest) look.rest->wait();
    std::lock_guard lock(mutex_);
    before_ = nullptr;  // it ended well: a long run must not become a long chain
  }
  Clock::time_point ended_at() const override {
    const Look look = look_now();
    return look.rest ? look.rest->ended_at() : look.returned_at;
  }
  // It threw, or what it started did. REQUIRES done().
  bool failed() {
    try {
      wait();
      return false;
    } catch (...) {
      return true;
    }
  }
  // Rethrows what a job before this one is known to have failed with.
  void refuse_after_failure() const {
    const auto last = before();
    if (last && last->done()) last->wait();
  }
  std::shared_ptr<JobEvent> before() const { return look_now().before; }
  void finish(EventPtr rest, std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    rest_ = std::move(rest);
    error_ = error;
    returned_at_ = Clock::now();
    returned_ = true;
    changed_.notify_all();
  }

 private:
  struct Look {
    bool returned;
    std::shared_ptr<JobEvent> before;
    EventPtr rest;
    std::exception_ptr error;
    Clock::time_point returned_at;
  };
  Look look_now() const {
    std::lock_guard lock(mutex_);
    return {returned_, before_, rest_, error_, returned_at_};
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
  std::shared_ptr<JobEvent> before_;
  EventPtr rest_;
  std::exception_ptr error_;
  Clock::time_point returned_at_;
};

void wait_quietly(Event& event) {
  try {
    event.wait();
  } catch (...) {  // whoever depends on it hears of it
  }
}

void wait_quietly_all(std::shared_ptr<JobEvent> last) {
  for (; last; last = last->before()) wait_quietly(*last);  // one that threw did not wait for those before it
}

// The event of a lane's next job, `last` being that of the one before.
std::shared_ptr<JobEvent> next_event(std::shared_ptr<JobEvent>& last) {
  if (last && last->done()) wait_quietly(*last);  // it drops what it held of jobs before
  return last = std::make_shared<JobEvent>(last);
}

void run_job(const std::vector<EventPtr>& after, const Job& job, JobEvent& event) {
  try {
    event.refuse_after_failure();
    for (const EventPtr& before : after) before->wait();
    event.finish(job(), nullptr);
  } catch (...) {
    event.finish(nullptr, std::current_exception());
  }
}

// Of a job that has ended well, and of all before it on its lane.
class EndedEvent final : public Event {
 public:
  explicit EndedEvent(Clock::time_point at) : at_(at) {}
  bool done() const override { return true; }
  void wait() override {}
  Clock::time_point ended_at() const override { return at_; }

 private:
  Clock::time_point at_;
};

// A pass over one token is many ops of microseconds, so a job that ends well where it is called costs no lock.
class InlineLane final : public Lane {
 public:
  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    if (last_ && last_->done() && !last_->failed()) last_ = nullptr;
    if (last_ || !after.empty()) return submit_after(after, job);
    try {
      EventPtr rest = job();
      if (!rest) return std::make_shared<EndedEvent>(Clock::now());
      next_event(last_)->finish(std::move(rest), nullptr);
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

  std::shared_ptr<JobEvent> last_;  // null where every job so far has ended well
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
    std::unique_lock lock(mutex_);
    auto event = next_event(last_);
    if (eager_ && idle_ && ready(after)) {
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
      lock.unlock();
      run_job(entry.after, entry.job, *entry.event);
      entry = {};  // what the job held is free before the lane says that it is idle
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
