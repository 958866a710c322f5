// Pipeline parallel over one axis: each rank runs the blocks of its stages, for all micro-batches.
//   Bytes per rank: those of its own blocks; activations of the micro-batches that wait for their backward.
//   Sent: the input of the next stage's first block for each micro-batch, and its gradient back; nothing where both
//   stages are of one rank.
//   A rank keeps the ops and the values of its blocks, in the sequence that the order gives it. Messages lie in one
//   order on all ranks, that in which they are made (spec/pipeline_order.h, times_of()): a send stands after the pass
//   that makes it, a receive before the pass that needs it, or before one that needs a later message. So the ends of
//   each message meet, however few of them wait. How far receives run ahead is decided by the number of buffers
//   (slots.h). The loss block's single op belongs to the backward pass of the last stage.
//   A parameter group that blocks of several ranks read (a tied embedding) is held by each of them, with the
//   contributions of its own blocks alone: shared_groups.h sums them.
// Sources: those of pipeline_orders.h.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/pipeline_order.h"
#include "herd/strategies/technique.h"

namespace herd::strategies {

class PipelineParallel final : public Strategy {
 public:
  // REQUIRES all micro-batches of a step that has the whole model. `stage_of_blocks`: spec/stage_cut.h, of the order's
  // stages. Throws what times_of() throws. `name`: of the order.
  PipelineParallel(int axis, std::vector<int> stage_of_blocks, spec::PipelineOrder order, std::string name);
  std::string name() const override { return "pipeline, " + name_; }
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<int> stage_of_blocks_;
  spec::PipelineOrder order_;
  std::vector<std::vector<int>> times_;  // of the order's turns
  std::string name_;
};

Technique pipeline_parallel_row();

}  // namespace herd::strategies
