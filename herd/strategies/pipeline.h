// Pipeline parallel over one axis of p stages: each rank runs the blocks of its stage, for all micro-batches.
//   Bytes per rank: those of its own blocks; activations of the micro-batches that wait for their backward.
//   Sent: the input of the next stage's first block for each micro-batch, and its gradient back.
//   A stage keeps the ops and the values of its blocks, in the order of pipeline_orders.h; a receive stands before the
//   pass that needs it and a send after the pass that makes it. How far receives run ahead is decided by the number of
//   buffers (slots.h). The loss block's single op belongs to the backward pass of the last stage.
//   A parameter group that blocks of several stages read (a tied embedding) is held by each of them, with the
//   contributions of its own blocks alone: shared_groups.h sums them.
// Sources: those of pipeline_orders.h.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/strategy.h"

namespace herd::strategies {

class Pipeline final : public Strategy {
 public:
  // REQUIRES all micro-batches of a step that has the whole model. `stage_of_blocks`: spec/stage_cut.h.
  Pipeline(int axis, std::vector<int> stage_of_blocks, std::string order)
      : axis_(axis), stage_of_blocks_(std::move(stage_of_blocks)), order_(std::move(order)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<int> stage_of_blocks_;
  std::string order_;
};

}  // namespace herd::strategies
