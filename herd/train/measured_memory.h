// Measures the device memory that a rank held while each op of a step ran, by use. It reads the allocator's counts
// before and after every op of the compute lane. Compared with the prediction (program/memory_use.h), this shows
// which op needs more than predicted. Threads: the thread that runs the executor.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/program/memory_use.h"
#include "herd/runtime/executor.h"

namespace herd::train {

class MeasuredMemory {
 public:
  // Returns the same bindings; while a step is recorded, it watches those of the compute lane. They borrow this object.
  runtime::BindingTable watch(runtime::BindingTable table);

  // Records the steps from here on, or none; drops what was recorded. Recording resets the allocator's peak at each op.
  void set_recording(bool on);
  // Returns the peak bytes of ops recorded since the last call; 0 where there were none.
  int64_t take_peak();
  // Returns the last recorded step, with the executor's times. REQUIRES that executor.drain() was called.
  std::vector<program::OpMemory> last_step(const runtime::Executor& executor) const;

 private:
  struct Counted {
    const program::Op* op;
    program::BytesByUse bytes;
  };
  void note(const program::Op& op, const program::BytesByUse& before);

  bool on_ = false;
  int64_t peak_ = 0;
  std::vector<Counted> ops_;
};

}  // namespace herd::train
