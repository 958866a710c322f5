#include "herd/runtime/deferred_release_internal.h"

#include <algorithm>

#include "herd/base/check.h"

namespace herd::runtime {

bool DeferredRelease::release() {
  if (done()) return true;
  const std::lock_guard lock(mutex_);
  if (job_ && std::all_of(after_.begin(), after_.end(), [](const EventPtr& event) { return event->held(); })) run_job();
  return !job_;
}

bool DeferredRelease::done() const {
  const std::lock_guard lock(mutex_);
  if (!std::all_of(after_.begin(), after_.end(), [](const EventPtr& event) { return event->done(); })) return false;
  try {
    for (const EventPtr& event : after_) {
      event->wait();  // throws the error of the event
      ended_at_ = std::max(ended_at_, event->ended_at());
    }
    if (job_) run_job();
  } catch (...) {
    error_ = std::current_exception();
  }
  job_ = nullptr;
  after_.clear();
  return true;
}

void DeferredRelease::run_job() const {
  try {
    job_();
  } catch (...) {
    error_ = std::current_exception();
  }
  job_ = nullptr;
}

void DeferredRelease::wait() {
  std::exception_ptr failed;
  for (const EventPtr& event : after()) {
    try {
      event->wait();
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  }
  const bool is_done = done();
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  HERD_CHECK(is_done || failed, "an event neither failed nor is done after a wait for it");
  if (!is_done) std::rethrow_exception(failed);  // an event may have failed before it is done
}

Clock::time_point DeferredRelease::ended_at() const {
  const std::lock_guard lock(mutex_);
  return ended_at_;
}

std::vector<EventPtr> DeferredRelease::after() const {
  const std::lock_guard lock(mutex_);
  return after_;
}

}  // namespace herd::runtime
