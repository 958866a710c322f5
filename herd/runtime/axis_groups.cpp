#include "herd/runtime/axis_groups.h"

#include <algorithm>
#include <set>

#include "herd/base/error.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"

namespace herd::runtime {

namespace {

using Key = std::pair<program::Lane, int>;  // lane and axis of a group

constexpr program::Lane kMessages = program::Lane::kPeerOut;  // stands for the lanes of sends and receives
constexpr program::Lane kEncodedSums = program::Lane::kIo;    // where no collective runs; stands for encoded_sums()

// Tells whether reductions may last into the next step: the compute lane waits neither for their updates nor for a norm
// of all gradients.
bool reductions_outlast_step(const program::Program& step) {
  const auto has = [&](program::OpKind kind) {
    return std::any_of(step.ops.begin(), step.ops.end(), [&](const program::Op& op) { return op.kind == kind; });
  };
  // A rank that does not own a gradient has no update that waits for its reduction.
  if (has(program::OpKind::kReduce) && !has(program::OpKind::kClip)) return true;
  return std::any_of(step.ops.begin(), step.ops.end(), [](const program::Op& op) {
    const bool waits_for_all = std::find(op.reads.begin(), op.reads.end(), program::factor()) != op.reads.end();
    return op.kind == program::OpKind::kStep && op.lane != program::Lane::kCompute && !waits_for_all;
  });
}

// Holds what the steps of all ranks need.
struct Needs {
  std::set<Key> groups;    // in the same order on all ranks
  bool own_world = false;  // reductions outlast the step, so those over the whole world need a group of their own
};

// Returns what the step of any rank needs. Collective.
Needs needs_of_all(Communicator& world, const program::Program& step) {
  const size_t axes = step.mesh.axes.size(), lanes = static_cast<size_t>(program::Lane::kUpdate) + 1;
  std::vector<int64_t> used(axes * lanes + 1, 0);
  used.back() = reductions_outlast_step(step) ? 1 : 0;
  for (const program::Op& op : step.ops) {
    if (op.axis == kNoAxis || is_served(op)) continue;
    const bool is_message = op.kind == program::OpKind::kSend || op.kind == program::OpKind::kReceive;
    const auto lane = static_cast<size_t>(is_message ? kMessages : op.lane);
    used[static_cast<size_t>(op.axis) * lanes + lane] = 1;
    const bool encoded = op.kind == program::OpKind::kAllReduce && program::keeps_residuals(op.writes.at(0).codec);
    if (encoded) used[static_cast<size_t>(op.axis) * lanes + static_cast<size_t>(kEncodedSums)] = 1;
  }
  if (axes > 0 && world.size() > 1) world.all_reduce(used, {.op = ReduceOp::kMax, .name = "groups of the step"});
  Needs out{.groups = {}, .own_world = used.back() > 0};
  for (size_t i = 0; i < axes * lanes; ++i) {
    if (used[i] > 0) out.groups.insert({static_cast<program::Lane>(i % lanes), static_cast<int>(i / lanes)});
  }
  return out;
}

}  // namespace

AxisGroups::AxisGroups(Communicator& world, const program::Program& step)
    : world_(world),
      mesh_(step.mesh),
      tensor_place_(step.tensor_place()),
      tensor_ranks_(step.tensor_ranks()),
      context_place_(step.context_place()),
      context_ranks_(step.context_ranks()),
      context_zigzag_(step.context_zigzag) {
  const Needs needs = needs_of_all(world, step);
  for (const auto& [lane, axis] : needs.groups) {
    if (lane == program::Lane::kReduce && step.mesh.size(axis) == world.size() && !needs.own_world) continue;
    const int index = step.mesh.index(axis, step.rank);
    const int first = index < 0 ? -1 : step.mesh.peer(axis, step.rank, 0);  // splits the group off
    const std::string what(lane == kEncodedSums ? "encoded sums" : program::lane_name(lane));
    const std::string name = what + " on " + program::axis_name(step.mesh, axis);
    Communicator group = world.split(first, index, name);
    if (index >= 0) groups_.emplace(std::pair(lane, axis), std::move(group));
  }
}

bool AxisGroups::divides_rows(const program::Value& value) const {
  for (int axis = 0; axis < static_cast<int>(mesh_.axes.size()); ++axis) {
    if (mesh_.axes[static_cast<size_t>(axis)].divides == Divided::kLayers && value.placement.is_shard(axis) &&
        value.placement.dimension(axis) == program::Dimension::kRows)
      return program::is_activation_or_gradient(value);
  }
  return false;
}

Communicator& AxisGroups::messages(int axis) const { return of(kMessages, axis); }

Communicator& AxisGroups::encoded_sums(int axis) const { return of(kEncodedSums, axis); }

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
