// The communicators of a step: one per lane and mesh axis that its collectives run on, so that ranks of an axis meet in
// the order of one lane and lanes progress independently (an op that ranks compute together has one, too); and one per
// axis along which messages go.
// Threads: made by one thread; of() from any.
#pragma once

#include <chrono>
#include <map>
#include <utility>

#include "herd/comm/communicator.h"
#include "herd/program/program.h"

namespace herd::runtime {

class AxisGroups {
 public:
  // Collective over `world`, which it borrows: reductions over an axis that is the whole world run on it; the others on
  // groups that are split off. Ranks may have other steps, so all make the groups that any of them needs.
  AxisGroups(Communicator& world, const program::Program& step);
  // Throws kBug where the step has no collective there.
  Communicator& of(program::Lane lane, int axis) const;
  Communicator& messages(int axis) const;  // for sends and receives; likewise
  Communicator& world() const { return world_; }
  int tensor_place() const { return tensor_place_; }      // of this rank on the step's tensor axis
  int tensor_ranks() const { return tensor_ranks_; }      // 1 without such an axis
  void set_deadline(std::chrono::milliseconds deadline);  // of all of them
  std::vector<AlgorithmUse> algorithms_used() const;      // of all of them, the world's included

 private:
  Communicator& world_;
  int tensor_place_ = 0, tensor_ranks_ = 1;
  mutable std::map<std::pair<program::Lane, int>, Communicator> groups_;
};

}  // namespace herd::runtime
