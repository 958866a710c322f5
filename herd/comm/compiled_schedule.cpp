#include "herd/comm/compiled_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "herd/base/check.h"
#include "herd/comm/packing.h"
#include "herd/kernels/copy.h"
#include "herd/schedule/step_dependencies.h"
#include "herd/transport/channel.h"

namespace herd::comm {
namespace {

int64_t elements_of(const Step& step) {
  if (!step.targets.empty()) return step.targets.front().size();
  return step.sources.empty() ? 0 : step.sources.front().size();
}

bool moves_locally(StepKind kind) { return kind == StepKind::kCopy || kind == StepKind::kReduce; }

// Orders the lanes of a schedule: first what receives, then the local steps that this enables, then what sends.
int polling_order(LaneKind kind) {
  switch (kind) {
    case LaneKind::kWait:
    case LaneKind::kReceive:
      return 0;
    case LaneKind::kLocal:
      return 1;
    case LaneKind::kSend:
      return 2;
  }
  return 0;
}

}  // namespace

CompiledSchedule::CompiledSchedule(Schedule schedule) : schedule_(std::move(schedule)) {
  turn_elements_ = kTurnBytes / element_bytes();
  const auto n = static_cast<size_t>(schedule_.num_ranks);
  std::vector<uint32_t> signals_sent(n, 0), signals_awaited(n, 0);
  const std::vector<std::vector<int>> dependencies = derive_dependencies(schedule_);
  std::map<LaneId, std::vector<uint32_t>> lanes;
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    const Step& step = schedule_.steps[i];
    add_step(step, signals_sent, signals_awaited);
    steps_.back().dependencies_begin = static_cast<uint32_t>(dependencies_.size());
    for (int earlier : dependencies[i]) {
      if (lane_of(schedule_.steps[static_cast<size_t>(earlier)]) == lane_of(step))
        continue;  // a lane runs its steps in order
      dependencies_.push_back(static_cast<uint32_t>(earlier));
    }
    steps_.back().dependencies_end = static_cast<uint32_t>(dependencies_.size());
    lanes[lane_of(step)].push_back(static_cast<uint32_t>(i));
  }
  std::map<std::pair<int, uint32_t>, std::span<const uint32_t>> ordered_lanes;  // by polling order, then by first step
  for (const auto& [id, indices] : lanes) ordered_lanes[{polling_order(id.kind), indices.front()}] = indices;
  for (const auto& [order, indices] : ordered_lanes) {
    const auto begin = static_cast<uint32_t>(lane_steps_.size());
    lane_steps_.insert(lane_steps_.end(), indices.begin(), indices.end());
    lanes_.push_back({begin, static_cast<uint32_t>(lane_steps_.size())});
  }
}

void CompiledSchedule::add_step(const Step& step, std::vector<uint32_t>& signals_sent,
                                std::vector<uint32_t>& signals_awaited) {
  CompiledStep out = {};
  out.kind = step.kind;
  out.completes = step.completes;
  out.peer = step.peer;
  out.num_targets = static_cast<uint16_t>(step.targets.size());
  out.num_sources = static_cast<uint16_t>(step.sources.size());
  out.first_operand = static_cast<uint32_t>(operands_.size());
  out.elements = elements_of(step);
  const int64_t bytes = out.elements * element_bytes();
  const auto on_stage = [](const Slice& slice) { return slice.space == Space::kStage; };
  const auto on_output = [](const Slice& slice) { return slice.space == Space::kOutput; };
  for (const auto* slices : {&step.targets, &step.sources}) {
    for (const Slice& slice : *slices) {
      operands_.push_back({slice.rank, slice.space, slice.begin * element_bytes()});
      if (slice.rank != schedule_.self) meets_peers_ = true;
      if (moves_locally(step.kind)) HERD_CHECK_EQ(slice.size(), out.elements);
    }
  }
  if (moves_locally(step.kind)) {
    const bool to_stage = std::any_of(step.targets.begin(), step.targets.end(), on_stage);
    const bool to_output = std::all_of(step.targets.begin(), step.targets.end(), on_output);
    // A reduction needs no such stores to peers: it has just read what it overwrites, so the lines are here.
    const bool to_peers = step.kind == StepKind::kCopy && kernels::has_take_over_stores() &&
                          std::any_of(step.targets.begin(), step.targets.end(),
                                      [&](const Slice& target) { return target.rank != schedule_.self; });
    if (to_output && schedule_.elements * element_bytes() >= kStreamBytes) {
      out.store = kernels::WriteKind::kStream;
    } else if ((to_stage || to_peers) && bytes >= kTakeOverBytes) {
      out.store = kernels::WriteKind::kTakeOver;
    }
  }
  if (step.kind == StepKind::kSignal || step.kind == StepKind::kWait) {
    meets_peers_ = true;
    auto& counts = step.kind == StepKind::kSignal ? signals_sent : signals_awaited;
    out.ordinal = ++counts[static_cast<size_t>(step.peer)];
    HERD_CHECK_LE(out.ordinal, transport::Channel::kMaxSignals);
  }
  if (!moves_locally(step.kind) && step.kind != StepKind::kSignal && step.kind != StepKind::kWait) {
    // A message has a target, a source, or with a reduction both.
    HERD_CHECK_LE(step.targets.size() + step.sources.size(), 2u);
  }
  max_operands_ = std::max(max_operands_, static_cast<int>(step.targets.size() + step.sources.size()));
  steps_.push_back(out);
}

}  // namespace herd::comm
