// Splits backward into two halves: the first makes the gradient of a block's input, the second, later, those of its
// weights. Between them lies what the second half needs (pending<b>.m): inputs and output gradients of the block's
// matrices. The arithmetic of the step does not change. Memory holds pending<b>.m from the first half to the second.
// For the loss block that is the gradient of all its logits, where an unsplit loss holds a few rows at a time. A block
// that has no matrices, or gives no gradient of its input, does not change.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2.
#pragma once

#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class SplitBackward final : public Strategy {
 public:
  explicit SplitBackward(const spec::ModelTable& model);
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  // These are by block; 0 pending means that the block does not change.
  std::vector<int64_t> pending_bytes_, scratch_bytes_, second_half_scratch_bytes_;
};

Technique split_backward_row();

}  // namespace herd::strategies
