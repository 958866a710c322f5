// Defines how a rank sleeps and is woken. Each rank owns one eventfd and one word in memory that its peers map. A peer
// pays the system call only when the word says that the rank sleeps.
//   sleeper: word = asleep, look for work once more, sleep      waker: publish the work, ring()
// Both sides store and load sequentially consistently, so one of them sees the other: publish with
// memory_order_seq_cst, look with seq_cst (on x86 a plain load).
#pragma once

#include <atomic>
#include <cstdint>

#include "herd/transport/core_spread.h"

namespace herd::transport {

struct alignas(64) DoorbellWord {
  std::atomic<uint32_t> asleep{0};
  CoreWord core{0};  // lies here since a peer that looks whether the rank sleeps has the cache line already
};

// Wakes a rank; borrows the word and the eventfd. Threads: ring() from any thread of any process, the rest from the
// owner's.
class Doorbell {
 public:
  Doorbell() = default;
  Doorbell(DoorbellWord* word, int descriptor) : word_(word), descriptor_(descriptor) {}
  void ring() {
    if (word_->asleep.load(std::memory_order_seq_cst) != 0) wake();
  }
  void announce_sleep() { word_->asleep.store(1, std::memory_order_seq_cst); }
  void cancel_sleep() { word_->asleep.store(0, std::memory_order_seq_cst); }
  void wake();   // wakes the owner, whether it sleeps or not
  void drain();  // the owner calls it after it woke
  int descriptor() const { return descriptor_; }

 private:
  DoorbellWord* word_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace herd::transport
