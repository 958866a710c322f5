#include "herd/comm/progress_engine.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "herd/comm/core_share.h"
#include "herd/comm/group_state.h"

namespace herd::comm {
namespace {

using std::chrono::steady_clock;

constexpr int kSpins = 300;                          // polls, about 30 us, before the leader yields its core
constexpr std::chrono::microseconds kSpinning{30};   // limit by time, where a poll asks the network and takes longer
constexpr int kYields = 200;                         // yields, about 100 us, before the leader sleeps
constexpr std::chrono::microseconds kLongWait{200};  // a wait in which yielding is of no use
constexpr std::chrono::milliseconds kServeAfter{2};  // time without a leader before the progress thread serves peers
constexpr std::chrono::milliseconds kSleep{50};      // longest time between two checks of deadlines and of peers
constexpr int kPollsPerClock = 8;                    // polls between two looks at the clock, while it spins
constexpr int kPollsPerCheck = 512;                  // polls between two looks at the clock, while there is work

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ProgressEngine::ProgressEngine(std::shared_ptr<transport::Transport> transport)
    : transport_(std::move(transport)), yields_(kYields) {
  // With more ranks than cores, a rank that spins keeps the peer that it waits for off the core.
  spins_ = cores_per_rank(*transport_) >= 1 ? kSpins : 0;
  if (transport_->needs_progress_thread()) thread_ = std::thread([this] { progress_thread(); });
}

ProgressEngine::~ProgressEngine() {
  {
    const auto lock = enter();
    stopping_ = true;
    transport_->interrupt_wait();
  }
  call_progress_thread();
  if (thread_.joinable()) thread_.join();
}

std::unique_lock<std::mutex> ProgressEngine::enter() {
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) return lock;
  entering_.fetch_add(1);
  std::unique_lock lock(mutex_);
  entering_.fetch_sub(1);
  return lock;
}

void ProgressEngine::submit(PendingOp& pending) {
  GroupState* group = pending.group;
  // This comes first, because it may throw, and then nothing is registered.
  if (std::find(active_.begin(), active_.end(), group) == active_.end()) active_.push_back(group);
  group->submit(pending);
  if (asleep_) transport_->wake();
}

void ProgressEngine::run(PendingOp& pending, std::unique_lock<std::mutex> issuing) {
  std::unique_lock lock = enter();
  submit(pending);
  if (issuing.owns_lock()) issuing.unlock();
  wait_locked(lock, pending);
  lock.unlock();
  if (pending.error) throw *pending.error;
}

void ProgressEngine::run_both(PendingOp& first, PendingOp& second) {
  std::unique_lock lock = enter();
  submit(first);
  submit(second);
  for (PendingOp* pending : {&first, &second}) wait_locked(lock, *pending);
  lock.unlock();
  for (const PendingOp* pending : {&first, &second}) {
    if (pending->error) throw *pending->error;
  }
}

void ProgressEngine::start(const std::shared_ptr<PendingOp>& pending) {
  const auto lock = enter();
  if (!thread_.joinable()) thread_ = std::thread([this] { progress_thread(); });
  active_.reserve(active_.size() + 1);  // the operation holds itself: from here on nothing throws
  pending->self = pending;
  pending->started = true;
  ++started_;
  submit(*pending);
  call_progress_thread();
  if (waits_for_network_) transport_->interrupt_wait();
}

void ProgressEngine::post(const std::shared_ptr<PendingOp>& pending) {
  const auto lock = enter();
  active_.reserve(active_.size() + 1);  // the operation holds itself: from here on nothing throws
  pending->self = pending;
  submit(*pending);
}

void ProgressEngine::wait(PendingOp& pending) {
  if (!pending.done.load(std::memory_order_acquire)) {
    std::unique_lock lock = enter();
    wait_locked(lock, pending);
  }
  if (pending.error) throw *pending.error;
}

size_t ProgressEngine::wait_any(std::span<PendingOp* const> ops, SteadyTime deadline,
                                const std::atomic<bool>& interrupt) {
  const Goal goal{ops, deadline, &interrupt};
  std::unique_lock lock = enter();
  // One that is done already returns at once. Others, such as the sends of answers, go on all the same.
  if (!leading_) poll();
  wait_locked(lock, goal);
  return goal.first_done();
}

void ProgressEngine::wake_waiters() {
  const auto lock = enter();
  if (asleep_) transport_->wake();
  if (waiting_ > 0) changed_.notify_all();
}

bool ProgressEngine::Goal::reached() const {
  return first_done() < ops.size() || (interrupt != nullptr && interrupt->load(std::memory_order_seq_cst));
}

size_t ProgressEngine::Goal::first_done() const {
  size_t index = 0;
  while (index < ops.size() && (ops[index] == nullptr || !ops[index]->done.load(std::memory_order_acquire))) ++index;
  return index;
}

void ProgressEngine::call_when_done(PendingOp& pending, std::function<void()> call) {
  {
    const auto lock = enter();
    if (!pending.done.load(std::memory_order_relaxed)) {
      pending.calls_when_done.push_back(std::move(call));
      return;
    }
  }
  call();
}

void ProgressEngine::wait_locked(std::unique_lock<std::mutex>& lock, PendingOp& pending) {
  PendingOp* const ops[] = {&pending};
  wait_locked(lock, Goal{ops});
}

void ProgressEngine::wait_locked(std::unique_lock<std::mutex>& lock, const Goal& goal) {
  const bool has_deadline = goal.deadline != SteadyTime::max();
  while (!goal.reached() && !(has_deadline && steady_clock::now() >= goal.deadline)) {
    if (!leading_) {
      leading_ = true;
      lead(lock, &goal);
      leading_ = false;
      if (waiting_ > 0) changed_.notify_all();
      continue;
    }
    ++waiting_;
    if (asleep_) transport_->wake();  // a progress thread that sleeps hands over the lead
    has_deadline ? static_cast<void>(changed_.wait_until(lock, goal.deadline)) : changed_.wait(lock);
    --waiting_;
  }
  if (!leading_ && waiting_ == 0 && started_ > 0) call_progress_thread();
}

void ProgressEngine::completed(PendingOp& pending) {
  if (pending.started) --started_;
  if (pending.self != nullptr) pending.finished_at = steady_clock::now();
  pending.keep_alive.clear();  // before it is done: who has waited may count on the memory
  pending.done.store(true, std::memory_order_release);
  if (waiting_ > 0) changed_.notify_all();
  for (const auto& call : std::exchange(pending.calls_when_done, {})) call();
  pending.self.reset();  // may free the operation
}

bool ProgressEngine::should_stop(const Goal* goal) const {
  return goal != nullptr ? goal->reached() : waiting_ > 0 || started_ == 0 || stopping_;
}

// Returns when the goal is reached, or where a deadline passed.
void ProgressEngine::lead(std::unique_lock<std::mutex>& lock, const Goal* goal) {
  ++leads_;
  int idle = 0;
  SteadyTime idle_since, spun_until;
  bool spun = false;
  const int spins = goal != nullptr ? spins_ : 0;
  while (!should_stop(goal)) {
    if (++polls_ % kPollsPerCheck == 0) check_health_if_due();
    if (should_stop(goal)) break;
    if (poll()) {
      // Where one wait after another is long, as for a slow network, the leader soon sleeps at once.
      if (spun) yields_ = steady_clock::now() - spun_until > kLongWait ? yields_ / 2 : kYields;
      spun = false;
      idle = 0;
      if (entering_.load(std::memory_order_relaxed) > 0) yield_lock(lock);
      continue;
    }
    if (entering_.load(std::memory_order_relaxed) > 0) yield_lock(lock);
    if (++idle <= spins) {
      pause_core();
      if (idle % kPollsPerClock != 0) continue;
      const auto now = steady_clock::now();
      if (idle == kPollsPerClock) idle_since = now;
      if (now - idle_since > kSpinning) idle = spins;
      continue;
    }
    if (!std::exchange(spun, true)) spun_until = steady_clock::now();
    if (idle <= spins + yields_) {
      transport_->yield_core(spins_ == 0);
    } else {
      if (goal != nullptr && goal->deadline != SteadyTime::max() && steady_clock::now() >= goal->deadline) break;
      if (sleep(lock, goal)) idle = spins;  // what wakes it may be a part of a record of the network only
    }
  }
}

bool ProgressEngine::poll() {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    GroupState* group = active_[i];
    moved |= group->poll();
    if (i < active_.size() && active_[i] == group) {
      if (group->idle()) {
        active_[i] = active_.back();
        active_.pop_back();
        moved = true;
      } else {
        ++i;
      }
    }
  }
  return moved;
}

// Checks all groups for deadlines that have passed, and for peers that are dead or run another program. Returns when to
// check again.
SteadyTime ProgressEngine::check_health() {
  checked_at_ = steady_clock::now();
  auto next_check = checked_at_ + kSleep;
  const auto groups = active_;
  for (GroupState* group : groups) next_check = std::min(next_check, group->check_health());
  return next_check;
}

// While one group moves without a pause, others may be stuck; their deadlines pass all the same.
void ProgressEngine::check_health_if_due() {
  const auto now = steady_clock::now();
  if (now - checked_at_ < kSleep) return;
  transport_->sleep_until(now);  // learns of peers that have ended
  check_health();
}

// Checks all groups, then sleeps until something happens. Returns true if it slept.
bool ProgressEngine::sleep(std::unique_lock<std::mutex>& lock, const Goal* goal) {
  auto wake_at = check_health();
  if (goal != nullptr) wake_at = std::min(wake_at, goal->deadline);
  if (should_stop(goal)) return false;
  transport_->announce_sleep();
  if (poll() || should_stop(goal)) {
    transport_->cancel_sleep();
    return false;
  }
  asleep_ = true;
  lock.unlock();
  transport_->sleep_until(wake_at);
  lock.lock();
  asleep_ = false;
  return true;
}

void ProgressEngine::yield_lock(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  for (int i = 0; i < 1000 && entering_.load() > 0; ++i) sched_yield();
  lock.lock();
}

void ProgressEngine::forget(GroupState& group) { std::erase(active_, &group); }

void ProgressEngine::call_progress_thread() {
  {
    const std::lock_guard lock(call_mutex_);
    called_ = true;
  }
  call_.notify_one();
}

// Waits, without the lock, until the progress thread is called, or kServeAfter where peers on other hosts need it.
// Returns true with the lock if it was called. A timeout does not wait for the lock: a thread that runs one operation
// after another would hand it over, and wake this thread, after each.
bool ProgressEngine::await_call(std::unique_lock<std::mutex>& lock) {
  bool called = true;
  {
    std::unique_lock call_lock(call_mutex_);
    const auto has_call = [this] { return called_; };
    if (transport_->needs_progress_thread()) {
      called = call_.wait_for(call_lock, kServeAfter, has_call);
    } else {
      call_.wait(call_lock, has_call);
    }
    called_ = false;
  }
  if (called) lock.lock();
  return called;
}

// Answers peers on other hosts, and finishes what was sent to them, while this rank has nothing in flight. It leaves
// that to the leader where operations follow each other closely.
void ProgressEngine::serve_peers(std::unique_lock<std::mutex>& lock) {
  const uint64_t leads = leads_;
  lock.unlock();
  do {
    if (await_call(lock)) return;
  } while (!lock.try_lock());
  if (stopping_ || leading_ || started_ > 0 || leads != leads_) return;
  transport_->progress_network();
  waits_for_network_ = true;
  lock.unlock();
  transport_->wait_for_network();
  lock.lock();
  waits_for_network_ = false;
}

void ProgressEngine::progress_thread() {
  prctl(PR_SET_NAME, "herd-progress");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (leading_ || started_ == 0 || waiting_ > 0) {
      serve_peers(lock);
      continue;
    }
    leading_ = true;
    lead(lock, nullptr);
    leading_ = false;
    changed_.notify_all();
  }
}

}  // namespace herd::comm
