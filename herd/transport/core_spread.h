// Spreads the ranks of a host over its cores where there are more ranks than cores. The system itself does so only
// after threads have run for some 100 ms. Until then three ranks may take turns on one core while the fourth has
// another.
// A rank that waits stays awake for a while, and yields its core now and then, before it sleeps. Each rank publishes
// the core on which it waits so. It moves to another core where at least two fewer ranks wait. It keeps its affinity,
// so the system may move it later. A caller that changes a thread's affinity at that very moment may have to repeat the
// change.
// Threads: one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace herd::transport {

// Holds 1 + the core on which a rank last waited awake; 0 = it has not waited yet, or sleeps.
using CoreWord = std::atomic<uint32_t>;

class CoreSpread {
 public:
  CoreSpread() = default;
  // Borrows the words of the ranks of this host, `own` among them, in memory that peers map.
  CoreSpread(CoreWord* own, std::vector<const CoreWord*> all) : own_(own), all_(std::move(all)) {}
  // Moves the calling thread if another core has fewer ranks that wait. Takes some hundred ns, so a thread that waits
  // calls it now and then.
  void rebalance();
  void leave();  // records that this rank waits on no core; a thread calls it before it sleeps

 private:
  CoreWord* own_ = nullptr;
  std::vector<const CoreWord*> all_;
  std::vector<int> waiting_;  // by core
};

}  // namespace herd::transport
