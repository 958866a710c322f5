// Defines what follows from weights that were written outside of a step, as by a checkpoint.   Threads: one at a time.
#pragma once

#include "herd/runtime/axis_groups.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

class WholeWeights {
 public:
  // Borrows both.
  WholeWeights(FlatParameters& parameters, const AxisGroups& groups, const program::Program& step);

  // After what ranks update was written: weights become the rounding of their master copies, where they have one, and
  // wholes those of their shards. Collective; no step may be running.
  void refresh();

 private:
  FlatParameters& parameters_;
  Communicator* gather_ = nullptr;  // null where nothing is cut
};

}  // namespace herd::runtime
