// Holds the communicators of a step. Each lane has one for every mesh axis that its collectives run on. So ranks of an
// axis meet in the order of one lane, and lanes progress independently. An axis whose ranks compute a loss together has
// one on the loss op's lane, too. Messages have one for every axis that they follow.
// Threads: one thread makes it; of() from any.
#pragma once

#include <chrono>
#include <map>
#include <utility>

#include "herd/comm/communicator.h"
#include "herd/program/program.h"

namespace herd::runtime {

class AxisGroups {
 public:
  // Collective over `world`, which it borrows. Reductions over an axis that is the whole world run on `world`, others
  // on groups split off it. Those that last into the next step have a group of their own, too, so that what ends a step
  // on `world` need not wait for them. Ranks may have different steps, so all make the groups that any of them needs.
  AxisGroups(Communicator& world, const program::Program& step);
  // Returns world() on lane kReduce where the axis has no group of its own there. On other lanes that throws kBug.
  Communicator& of(program::Lane lane, int axis) const;
  Communicator& messages(int axis) const;  // serves sends and receives along the axis; throws as of()
  // Gathers encoded sums of gradients over the axis, while lane kReduce exchanges terms of the next.
  Communicator& encoded_sums(int axis) const;
  Communicator& world() const { return world_; }
  // These are Program's.
  int tensor_place() const { return tensor_place_; }
  int tensor_ranks() const { return tensor_ranks_; }
  int context_place() const { return context_place_; }
  int context_ranks() const { return context_ranks_; }
  bool context_zigzag() const { return context_zigzag_; }
  // Tells whether ranks that divide layers have a part each of the value's rows.
  bool divides_rows(const program::Value& value) const;
  void set_deadline(std::chrono::milliseconds deadline);  // sets that of all groups
  std::vector<AlgorithmUse> algorithms_used() const;      // lists those of all groups, the world's included

 private:
  Communicator& world_;
  Mesh mesh_;
  int tensor_place_ = 0, tensor_ranks_ = 1, context_place_ = 0, context_ranks_ = 1;
  bool context_zigzag_ = false;
  mutable std::map<std::pair<program::Lane, int>, Communicator> groups_;
};

}  // namespace herd::runtime
