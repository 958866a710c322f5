#include "future_executor.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace herd::pytorch {
namespace {

constexpr std::chrono::seconds kIdle{5};

struct Executor {
  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  size_t idle = 0;  // threads that wait for a job

  void run(std::function<void()> job) {
    const std::lock_guard lock(mutex);
    jobs.push_back(std::move(job));
    if (idle < jobs.size()) {
      std::thread([this] { work(); }).detach();
    } else {
      changed.notify_one();
    }
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      ++idle;
      const bool has_job = changed.wait_for(lock, kIdle, [this] { return !jobs.empty(); });
      --idle;
      if (!has_job) return;
      {
        std::function<void()> job = std::move(jobs.front());
        jobs.pop_front();
        lock.unlock();
        job();
      }
      lock.lock();
    }
  }
};

// It is never destroyed, since its threads may outlive main(). A child that forks gets one of its own.
Executor& executor() {
  static std::atomic<Executor*> current = new Executor;
  Executor* found = current.load();
  if (found->process != getpid()) {
    auto* own = new Executor;
    if (current.compare_exchange_strong(found, own)) return *own;
    delete own;
    return *current.load();
  }
  return *found;
}

}  // namespace

void run_later(std::function<void()> job) { executor().run(std::move(job)); }

}  // namespace herd::pytorch
