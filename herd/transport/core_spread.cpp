#include "herd/transport/core_spread.h"

#include <sched.h>

#include <algorithm>

namespace herd::transport {

void CoreSpread::look() {
  cpu_set_t allowed;
  const int core = sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE || own_ == nullptr) return;
  const uint32_t word = static_cast<uint32_t>(core) + 1;
  if (own_->load(std::memory_order_relaxed) != word) own_->store(word, std::memory_order_relaxed);
  waiting_.assign(CPU_SETSIZE + 1, 0);
  for (const CoreWord* one : all_) ++waiting_[std::min<uint32_t>(one->load(std::memory_order_relaxed), CPU_SETSIZE)];
  const int here = waiting_[word];
  if (here < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int emptiest = core;
  for (int other = 0; other < CPU_SETSIZE; ++other) {
    if (!CPU_ISSET(other, &allowed)) continue;
    if (waiting_[static_cast<size_t>(other) + 1] < waiting_[static_cast<size_t>(emptiest) + 1]) emptiest = other;
  }
  if (here < waiting_[static_cast<size_t>(emptiest) + 1] + 2) return;
  own_->store(static_cast<uint32_t>(emptiest) + 1, std::memory_order_relaxed);  // first: the next to look counts it
  cpu_set_t target;
  CPU_ZERO(&target);
  CPU_SET(emptiest, &target);
  if (sched_setaffinity(0, sizeof target, &target) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace herd::transport
