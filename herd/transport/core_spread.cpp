#include "herd/transport/core_spread.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace herd::transport {
namespace {

// Moves this thread to the core and then restores the cores that it may use, unless somebody else has changed them. If
// it may use all that the system allows, it asks for every core, so that it can use what the system allows later.
void move_to(int core, const cpu_set_t& allowed) {
  cpu_set_t target, now;
  CPU_ZERO(&target);
  CPU_SET(core, &target);
  if (sched_setaffinity(0, sizeof target, &target) != 0) return;
  if (sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, &target)) return;
  cpu_set_t everything;
  std::memset(&everything, 0xff, sizeof everything);
  const bool restored = sched_setaffinity(0, sizeof everything, &everything) == 0 &&
                        sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &allowed);
  if (!restored) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

void CoreSpread::rebalance() {
  cpu_set_t allowed;
  const int core = sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE || own_ == nullptr) return;
  const uint32_t word = static_cast<uint32_t>(core) + 1;
  if (own_->load(std::memory_order_relaxed) != word) own_->store(word, std::memory_order_relaxed);
  waiting_.assign(CPU_SETSIZE + 1, 0);
  for (const CoreWord* peer : all_) ++waiting_[std::min<uint32_t>(peer->load(std::memory_order_relaxed), CPU_SETSIZE)];
  const int ranks_here = waiting_[word];
  if (ranks_here < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int emptiest = core;
  for (int step = 1; step < CPU_SETSIZE; ++step) {  // from the next core on, so that not all ranks choose the first
    const int next = (core + step) % CPU_SETSIZE;
    if (!CPU_ISSET(next, &allowed)) continue;
    if (waiting_[static_cast<size_t>(next) + 1] < waiting_[static_cast<size_t>(emptiest) + 1]) emptiest = next;
  }
  if (ranks_here < waiting_[static_cast<size_t>(emptiest) + 1] + 2) return;
  own_->store(static_cast<uint32_t>(emptiest) + 1, std::memory_order_relaxed);  // before the move: others count it
  move_to(emptiest, allowed);
}

void CoreSpread::leave() {
  if (own_ != nullptr && own_->load(std::memory_order_relaxed) != 0) own_->store(0, std::memory_order_relaxed);
}

}  // namespace herd::transport
