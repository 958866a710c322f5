// Completes weights that were written outside of a step, as by a checkpoint.   Threads: one at a time.
#pragma once

#include "herd/runtime/axis_groups.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

class WholeWeights {
 public:
  // Borrows `parameters` and `groups`.
  WholeWeights(FlatParameters& parameters, const AxisGroups& groups, const program::Program& step);

  // Call it after the part that each rank updates was written. Weights become the rounding of their master copies,
  // where they have one, and whole weights are gathered from their shards. Collective. REQUIRES that no step runs.
  void refresh();

 private:
  FlatParameters& parameters_;
  Communicator* gather_ = nullptr;  // null where nothing is cut
};

}  // namespace herd::runtime
