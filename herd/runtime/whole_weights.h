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

 private:
  FlatParameters& parameters_;
  Communicator* gather_ = nullptr;  // null where weights are whole
};

}  // namespace herd::runtime
