// Makes whole weights anew after ranks wrote their parts outside of a step, for example from a checkpoint. Threads: one
// at a time.
#pragma once

#include <map>

#include "herd/runtime/axis_groups.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

class WeightRefresher {
 public:
  // Borrows `parameters` and `groups`. `step` tells which axis cuts weights into shards.
  WeightRefresher(FlatParameters& parameters, const AxisGroups& groups, const program::Program& step);

  // Call it after each rank has written the part that it updates. Where there are fp32 master copies, rounds them to
  // the weights. Then gathers whole weights from their shards. Collective. REQUIRES that no step runs.
  void refresh();

 private:
  FlatParameters& parameters_;
  const AxisGroups& groups_;
  std::map<int, int> axes_;    // by group, along which weights are cut, or have owners
  std::map<int, int> owners_;  // by group that has one: its place on the axis
};

}  // namespace herd::runtime
