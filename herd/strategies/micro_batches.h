// Gradient accumulation: a step runs its work in `count` micro-batches, one after the other, and gradients add up.
// Memory holds activations of one micro-batch at a time; weights, gradients and states stay as they are. Micro-batch 0
// runs from load to its last backward, then 1, .., so sums run in the order of micro-batches.
// Threads: pure.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class MicroBatches final : public Strategy {
 public:
  explicit MicroBatches(int count);  // throws kBadConfig if count < 1
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int count_;
};

Technique micro_batches_row();

}  // namespace herd::strategies
