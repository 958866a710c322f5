// ProgressEngine makes progress on the operations in flight. One thread at a time, the leader, advances all operations
// of this rank in all its groups. The leader is the caller of a synchronous operation while it waits, else the progress
// thread while asynchronous operations are in flight. The leader spins briefly, then yields its core, then sleeps on
// the transport's doorbell; where waits have been long, it sleeps at once. With nothing in flight no thread runs,
// except that the progress thread answers peers on other hosts. Threads: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "herd/comm/pending_op.h"
#include "herd/transport/transport.h"

namespace herd::comm {

class ProgressEngine {
 public:
  explicit ProgressEngine(std::shared_ptr<transport::Transport> transport);
  ~ProgressEngine();

  // Runs the operation, and returns when it is done. Throws its error. Releases `issuing` once the operation has its
  // place in the group's order.
  void run(PendingOp& pending, std::unique_lock<std::mutex> issuing = {});
  void run_both(PendingOp& first, PendingOp& second);  // runs both at the same time; transfers of one group
  // Hands the operation to the progress thread.
  void start(const std::shared_ptr<PendingOp>& pending);
  // Leaves the operation to threads that wait for this or another one: it wakes no progress thread. A server that
  // waits all the time saves the switch between two threads for each message.
  void post(const std::shared_ptr<PendingOp>& pending);
  void wait(PendingOp& pending);
  // Returns the index of an operation that is done; ops.size() at the deadline, or once `interrupt` is true. Throws no
  // error of theirs. Nullptrs are passed over.
  size_t wait_any(std::span<PendingOp* const> ops, SteadyTime deadline, const std::atomic<bool>& interrupt);
  void wake_waiters();                                                  // lets wait_any() look at `interrupt`
  void call_when_done(PendingOp& pending, std::function<void()> call);  // as Work::on_done()

  // Runs `change` under the lock, while no group makes progress.
  template <typename Change>
  auto locked(Change&& change) {
    const std::unique_lock lock = enter();
    return change();
  }
  void forget(GroupState& group);      // removes it from the groups that have operations in flight
  void completed(PendingOp& pending);  // ends the operation and wakes its waiters; REQUIRES the lock
  void count_moved(uint64_t bytes) { bytes_moved_.fetch_add(bytes, std::memory_order_relaxed); }
  uint64_t bytes_moved() const { return bytes_moved_.load(std::memory_order_relaxed); }
  transport::Transport& transport() { return *transport_; }
  const std::shared_ptr<transport::Transport>& shared_transport() const { return transport_; }

 private:
  // Says what a leader waits for: any of these operations, the deadline, or an interrupt.
  struct Goal {
    std::span<PendingOp* const> ops;
    SteadyTime deadline = SteadyTime::max();
    const std::atomic<bool>* interrupt = nullptr;
    size_t first_done() const;
    bool reached() const;
  };
  std::unique_lock<std::mutex> enter();
  void submit(PendingOp& pending);
  void wait_locked(std::unique_lock<std::mutex>& lock, PendingOp& pending);
  void wait_locked(std::unique_lock<std::mutex>& lock, const Goal& goal);
  void lead(std::unique_lock<std::mutex>& lock, const Goal* goal);
  bool poll();
  SteadyTime check_health();
  void check_health_if_due();  // lets deadlines of other groups pass while one group moves without a pause
  bool sleep(std::unique_lock<std::mutex>& lock, const Goal* goal);
  bool should_stop(const Goal* goal) const;  // tells the leader to stop
  void yield_lock(std::unique_lock<std::mutex>& lock);
  void progress_thread();
  void call_progress_thread();
  bool await_call(std::unique_lock<std::mutex>& lock);
  void serve_peers(std::unique_lock<std::mutex>& lock);

  std::shared_ptr<transport::Transport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> bytes_moved_{0};
  std::atomic<int> entering_{0};     // threads that want the lock
  std::vector<GroupState*> active_;  // groups with operations in flight
  int started_ = 0;                  // operations in flight that the progress thread finishes
  int waiting_ = 0;                  // threads that wait for changed_
  bool leading_ = false;             // a thread is the leader
  bool asleep_ = false;              // the leader sleeps
  bool waits_for_network_ = false;   // the progress thread is in Transport::wait_for_network()
  uint64_t leads_ = 0;               // times that a thread has become the leader
  uint64_t polls_ = 0;
  SteadyTime checked_at_;  // time of the last check_health()
  bool stopping_ = false;
  int yields_;             // of the leader's core before it sleeps
  int spins_ = 0;          // polls without progress before the leader yields its core; 0 where ranks outnumber cores
  std::mutex call_mutex_;  // guards the next two; a thread that takes both takes mutex_ first
  std::condition_variable call_;
  bool called_ = false;  // the progress thread has something to do, or to stop for
  std::thread thread_;
};

}  // namespace herd::comm
