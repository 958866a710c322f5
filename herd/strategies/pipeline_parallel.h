// Pipeline parallel over one axis: each rank runs the blocks of its stages, for all micro-batches.
//   A rank holds the bytes of its own blocks, and activations of the micro-batches that wait for their backward.
//   For each micro-batch it sends the tensors that later stages on other ranks read, each from stage to stage and once
//   to a rank (spec/stage_cut.h, border_tensors()). Gradients come back the same way: a rank's gradient of a tensor is
//   the sum of what its own blocks and the ranks that it sent the tensor to give. It sends the sum back after the
//   backward of the stage for which it received the tensor. A gradient that is received where the rank's later stages
//   have begun it is a partial one, which an op adds. Each stage loads what its blocks read of the batch. A rank keeps
//   the ops and the values of its blocks, in the order's sequence of passes. Messages have the same order on all ranks:
//   by the time of the pass that makes them (spec/pipeline_order.h, times_of()). A send stands after the pass that
//   makes it. A receive stands before the pass that needs it, or before a pass that needs a later message. What a rank
//   received and sends on holds its receive buffer until it is received there, so each earlier message is received
//   before such a send. So the send and the receive of a message always meet, whatever the number of receive buffers.
//   That number decides how far receives run ahead (slots.h). The loss block's single op belongs to the backward pass
//   of the last stage. Each rank whose blocks read a parameter group (a tied embedding) holds it, with the
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
  // stage_of_blocks[b] is the stage of block b, as spec/stage_cut.h cuts them into the order's stages; `name` names the
  // order. Throws what times_of() throws. rewrite() REQUIRES a step with all micro-batches and all blocks.
  PipelineParallel(int axis, std::vector<int> stage_of_blocks, spec::PipelineOrder order, std::string name);
  std::string name() const override { return "pipeline, " + name_; }
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<int> stage_of_blocks_;
  spec::PipelineOrder order_;
  std::vector<std::vector<int>> times_;  // by rank: the time of each of its passes, in the order's sequence
  std::string name_;
};

Technique pipeline_parallel_row();

}  // namespace herd::strategies
