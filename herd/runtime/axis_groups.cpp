#include "herd/runtime/axis_groups.h"

#include <set>

#include "herd/base/error.h"
#include "herd/program/names.h"

namespace herd::runtime {

AxisGroups::AxisGroups(Communicator& world, const program::Program& step) : world_(world) {
  std::set<std::pair<program::Lane, std::string>> used;
  for (const program::Op& op : step.ops) {
    if (op.kind == program::OpKind::kGather || op.kind == program::OpKind::kReduce) used.insert({op.lane, op.axis});
  }
  for (const auto& [lane, axis] : used) {
    if (lane == program::Lane::kReduce && step.mesh.at(axis) == world.size()) continue;
    int color = 0;  // the place along all other axes
    for (const auto& [other, size] : step.mesh) {
      if (other != axis) color = color * size + step.coordinate.at(other);
    }
    const std::string name = std::string(program::lane_name(lane)) + " on " + axis;
    groups_.emplace(std::pair(lane, axis), world.split(color, step.coordinate.at(axis), name));
  }
}

Communicator& AxisGroups::of(program::Lane lane, const std::string& axis) const {
  if (const auto group = groups_.find({lane, axis}); group != groups_.end()) return group->second;
  if (lane == program::Lane::kReduce) return world_;
  throw Error(Code::kBug, "no group of lane " + std::string(program::lane_name(lane)) + " on axis " + axis);
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
