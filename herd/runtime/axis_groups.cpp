#include "herd/runtime/axis_groups.h"

#include <set>

#include "herd/base/error.h"
#include "herd/program/message.h"
#include "herd/program/names.h"

namespace herd::runtime {

AxisGroups::AxisGroups(Communicator& world, const program::Program& step) : world_(world) {
  std::set<std::pair<program::Lane, int>> used;
  for (const program::Op& op : step.ops) {
    if (program::is_collective(op)) used.insert({op.lane, op.axis});
  }
  for (const auto& [lane, axis] : used) {
    if (lane == program::Lane::kReduce && step.mesh.size(axis) == world.size()) continue;
    const int first = step.mesh.peer(axis, step.rank, 0);  // names the group
    const std::string name = std::string(program::lane_name(lane)) + " on " + program::axis_name(step.mesh, axis);
    groups_.emplace(std::pair(lane, axis), world.split(first, step.mesh.index(axis, step.rank), name));
  }
}

Communicator& AxisGroups::of(program::Lane lane, int axis) const {
  if (const auto group = groups_.find({lane, axis}); group != groups_.end()) return group->second;
  if (lane == program::Lane::kReduce) return world_;
  throw Error(Code::kBug,
              "no group of lane " + std::string(program::lane_name(lane)) + " on axis " + std::to_string(axis));
}

void AxisGroups::set_deadline(std::chrono::milliseconds deadline) {
  world_.set_deadline(deadline);
  for (auto& [key, group] : groups_) group.set_deadline(deadline);
}

std::vector<AlgorithmUse> AxisGroups::algorithms_used() const {
  std::vector<AlgorithmUse> all = world_.algorithms_used();
  for (const auto& [key, group] : groups_) {
    for (AlgorithmUse& use : group.algorithms_used()) all.push_back(std::move(use));
  }
  return all;
}

}  // namespace herd::runtime
