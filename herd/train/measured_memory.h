// Defines what device memory a rank really held while each op of a step ran, by use: the allocator's counts, read
// before and after every op of the compute lane. Beside the predicted one (program/memory_use.h) they name the op that
// needs more than was thought. Threads: one at a time: the thread that runs the executor.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/program/memory_use.h"
#include "herd/runtime/executor.h"

namespace herd::train {

class MeasuredMemory {
 public:
  // The same bindings, of which those of the compute lane are watched while a step is recorded. It borrows this.
  runtime::BindingTable watch(runtime::BindingTable table);

  // Records the steps from here on, or none. Recording begins the allocator's peak anew at each op.
  void record(bool on);
  // Of the recorded ops since the last call; 0 where there were none.
  int64_t take_peak();
  // The last recorded step, with the executor's times. Call its drain() first.
  std::vector<program::OpMemory> step(const runtime::Executor& executor) const;

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
