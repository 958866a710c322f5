// Enforces the device budget on CPU: it counts every tensor that torch allocates. An allocation that goes over the
// budget throws kOverBudget with the table of what is live. On a GPU the counts are those of torch's own allocator, and
// check_budget() throws after the allocation that went over.
//
// Counted bytes are those asked for. A CountedMemory counts what herd allocates past torch (flat weights in symmetric
// memory). Blocks of 256 KiB and more that are freed are kept and used again. Faulting their pages in anew would cost a
// training step more than all of its LayerNorms. A kept block serves a request of at least 8/9 of its bytes. Kept and
// live big blocks together hold at most 9/8 of the peak of bytes asked for in big blocks. The slack of an eighth lets
// blocks that one phase of a step needs stay through the other phases.
// Torch has one CPU allocator per process, so this is one per process too. Until install() nothing is counted.
//   Memory of a message is free once its operation is done, which a rank may notice a moment after its peer has gone
//   on.
// So an allocation that does not fit waits while a ShortageHandler says that memory is on its way, for 100 ms at most.
// Threads: any.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace herd {

enum class MemoryLabel : uint8_t { kOther, kWeights, kGradients, kStates, kActivations, kWorkspace };
inline constexpr int kNumMemoryLabels = 6;
std::string_view memory_label_name(MemoryLabel label);  // returns "weights"

// Counts under `label` what this thread allocates while the guard lives, until that memory is freed.
class MemoryLabelGuard {
 public:
  explicit MemoryLabelGuard(MemoryLabel label);
  ~MemoryLabelGuard();
  MemoryLabelGuard(const MemoryLabelGuard&) = delete;
  MemoryLabelGuard& operator=(const MemoryLabelGuard&) = delete;

 private:
  MemoryLabel before_;
};

// Counts nothing of what this thread allocates while the guard lives: tensors that are the host's, such as a batch
// before it is loaded.
class UncountedMemory {
 public:
  UncountedMemory();
  ~UncountedMemory();
  UncountedMemory(const UncountedMemory&) = delete;
  UncountedMemory& operator=(const UncountedMemory&) = delete;

 private:
  MemoryLabel before_;
};

// Counts memory that is not torch's, while it lives. Throws kOverBudget as a tensor would.
class CountedMemory {
 public:
  CountedMemory(MemoryLabel label, int64_t bytes);
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

 private:
  MemoryLabel label_;
  int64_t bytes_;
};

// Is asked, while it lives, where an allocation does not fit the budget.
class ShortageHandler {
 public:
  // `free` frees what is no longer needed, and says whether more will be free soon. The allocating thread calls it, any
  // thread, and it allocates no tensor.
  explicit ShortageHandler(std::function<bool()> free);
  ~ShortageHandler();
  ShortageHandler(const ShortageHandler&) = delete;
  ShortageHandler& operator=(const ShortageHandler&) = delete;

 private:
  std::function<bool()> free_;
};

struct DeviceMemory {
  // Counts what torch allocates on a device instead, from here on. CountedMemory then labels memory that torch has
  // counted. Does nothing for the CPU, and for devices whose allocator has no statistics.
  static void count_on(c10::Device device);
  static void check_budget();  // throws kOverBudget where the peak is over the budget; only after count_on() it can be
  static void install();       // counts from here on; may be called again. Older tensors stay uncounted
  static void set_budget(int64_t bytes);  // limits live bytes; 0 limits nothing
  static int64_t budget();
  static int64_t live_bytes();
  static int64_t live_bytes(MemoryLabel label);
  static int64_t peak_bytes();  // returns the most live bytes since install() or reset_peak()
  static void reset_peak();
  static int64_t cached_bytes();  // returns the bytes of freed blocks that are kept for use again
  static void empty_cache();      // gives kept blocks back to the system
  static std::string table();     // returns the live bytes against the budget, then a line for each label
};

}  // namespace herd
