// Spreads the ranks of a host over its cores where they outnumber them. The system does so only after some 100 ms
// where threads run all the time, and until then three ranks take turns on one core while the fourth has another.
//   Each rank shows the core on which it waits; one on whose core two more wait than on another goes there. It keeps
//   its affinity: the system may move it on. Who changes a thread's affinity at that very moment may have to do so
//   again.
// Threads: one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace herd::transport {

// The core on which a rank last waited, and 1; 0 = it has not waited yet, or sleeps.
using CoreWord = std::atomic<uint32_t>;

class CoreSpread {
 public:
  CoreSpread() = default;
  // Borrows the words, in memory that peers map: of the ranks of this host, `own` among them.
  CoreSpread(CoreWord* own, std::vector<const CoreWord*> all) : own_(own), all_(std::move(all)) {}
  void look();   // by the thread that waits; some hundred ns, so now and then
  void leave();  // before it sleeps

 private:
  CoreWord* own_ = nullptr;
  std::vector<const CoreWord*> all_;
  std::vector<int> waiting_;  // by core
};

}  // namespace herd::transport
