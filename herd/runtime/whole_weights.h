// Whole weights of a block outside of a step: for validation, measurements and searches. Where a rank keeps them whole,
// there is nothing to do; else they are gathered into the buffers that the step uses, so it must not be running.
// Threads: one at a time.
#pragma once

#include "herd/nn/block.h"
#include "herd/runtime/axis_groups.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

class WholeWeights {
 public:
  // Borrows both.
  WholeWeights(FlatParameters& parameters, const AxisGroups& groups, const program::Program& step);

  // Collective where weights are shards: the same blocks in the same order on every rank. Valid until give_back(), or
  // until another block is taken.
  void take(const nn::Block& block);
  void give_back(const nn::Block& block);

  // After what ranks update was written outside of a step, as by a checkpoint: weights become the rounding of their
  // master copies, where they have one, and wholes those of their shards. Collective.
  void refresh();

 private:
  void gather(int group);
  FlatParameters& parameters_;
  Communicator* gather_ = nullptr;  // null where nothing is cut
};

}  // namespace herd::runtime
