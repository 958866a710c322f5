// Backward in two halves: the gradient of a block's input at once, those of its weights when there is time. Between
// them lies what the second half is made of (pending<b>.m): inputs and output gradients of the block's matrices.
//   Time as before; memory pending<b>.m from the one to the other: of the loss, the gradients of all its logits, which
//   otherwise are in no memory after their chunk. A block that has no matrices, or gives no gradient of its input,
//   stays as it is.
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
  std::vector<int64_t> pending_bytes_, scratch_bytes_, late_scratch_bytes_;  // by block; 0 pending = stays as it is
};

Technique split_backward_row();

}  // namespace herd::strategies
