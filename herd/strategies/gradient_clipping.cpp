#include "herd/strategies/gradient_clipping.h"

#include <algorithm>

#include "herd/program/program_names.h"
#include "herd/strategies/expert_parallel.h"
#include "herd/strategies/layer_owners.h"
#include "herd/strategies/replicas.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/tensor_parallel.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

std::string GradientClipping::name() const { return "clip"; }

// Says whether this rank adds the group's gradient to the norm. Of ranks that hold the same gradient, only the first
// does.
bool GradientClipping::counts(const program::Program& step, int group) const {
  const int stage = step.mesh.index(axes_.stages, step.rank);
  const bool on_this_stage = groups_by_stage_.empty() || groups_by_stage_[static_cast<size_t>(stage)].contains(group);
  // Where ranks hold parts of the experts, shards are summed over all data ranks, of which each has others of experts;
  // wholes over the ranks that hold the experts together.
  const int same = axes_.experts == kNoAxis || of_experts_.contains(group) ? kNoAxis
                   : axes_.shards == kNoAxis                               ? axes_.experts
                                                                           : axes_.replicas;
  if (step.mesh.index(same, step.rank) != 0) return false;  // of ranks with the same gradient along that axis
  if (!cut_.contains(group)) return on_this_stage && step.mesh.index(axes_.tensor, step.rank) == 0;
  const auto copied = copied_.find(group);
  return on_this_stage && (copied == copied_.end() || step.mesh.index(copied->second, step.rank) == 0);
}

program::Program GradientClipping::rewrite(program::Program step) const {
  const auto first_update =
      std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) { return op.kind == OpKind::kStep; });
  std::vector<Op> ops(step.ops.begin(), first_update);
  // Where stages, owners, tensor or expert ranks hold different groups, one norm of all is summed over them. Elsewhere
  // each group has one.
  const bool sums_over_ranks =
      axes_.stages != kNoAxis || axes_.tensor != kNoAxis || axes_.experts != kNoAxis || axes_.owned;
  Op clip_op{.kind = OpKind::kClip, .reads = {}, .writes = {program::factor()}};
  Op norm_of_all{.kind = OpKind::kNorm, .reads = {}, .writes = {program::norm(0)}};
  for (auto op = first_update; op != step.ops.end(); ++op) {
    if (op->kind != OpKind::kStep) continue;
    for (const Value& value : op->reads) {
      if (value.kind != ValueKind::kGradient) continue;
      clip_op.lane = norm_of_all.lane = op->lane;
      if (sums_over_ranks) {
        if (counts(step, value.index)) norm_of_all.reads.push_back(value);
        continue;
      }
      const Value norm = program::norm(value.index);
      ops.push_back({.kind = OpKind::kNorm, .lane = op->lane, .reads = {value}, .writes = {norm}});
      clip_op.reads.push_back(norm);
      step.values[norm] = {.bytes = 8};
    }
  }
  if (sums_over_ranks) {
    ops.push_back(norm_of_all);
    clip_op.reads = norm_of_all.writes;
    step.values[program::norm(0)] = {.bytes = 8};
  }
  const int of_shards = axes_.experts == kNoAxis ? axes_.shards : axes_.shards == kNoAxis ? axes_.experts : axes_.data;
  for (const int axis : {of_shards, axes_.tensor, axes_.stages}) {
    if (axis == kNoAxis || clip_op.reads.empty()) continue;
    ops.push_back({.kind = OpKind::kAllReduce,
                   .lane = program::Lane::kReduce,
                   .reads = clip_op.reads,
                   .writes = clip_op.reads,
                   .axis = axis});
  }
  step.values[program::factor()] = {.bytes = 8};
  ops.push_back(clip_op);
  for (auto op = first_update; op != step.ops.end(); ++op) {
    ops.push_back(*op);
    if (op->kind == OpKind::kStep) ops.back().reads.push_back(program::factor());
  }
  step.ops = std::move(ops);
  return step;
}

bool needs_norm(const spec::RunFile& run, const spec::Layout& layout) {
  if (uses_servers(run, layout)) return false;
  return run.optimizer.clip > 0 || run.health.check_finite || run.strategy.precision == "fp16";
}

Technique gradient_clipping_row() {
  return {.name = "clip",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!needs_norm(step.run, step.layout)) return nullptr;
            std::set<int> cut;
            for (const spec::BlockShape& block : step.model.blocks) {
              if (block.split == spec::Split::kCut) cut.insert(block.groups.begin(), block.groups.end());
            }
            const ClipAxes axes{shard_axis(step.run, step.layout),
                                step.layout.stage_axis,
                                step.split ? step.layout.tensor_axis : kNoAxis,
                                step.layout.expert_axis,
                                step.layout.gradient_axis,
                                has_replicas(step.run, step.layout) ? step.layout.replica_axis : kNoAxis,
                                has_owners(step.run, step.layout)};
            return std::make_unique<GradientClipping>(axes, step.stages.first_held_groups, cut,
                                                      axes_of_copies(step.model, step.layout),
                                                      groups_of_experts(step.model));
          },
          .extend_proof = [](const StepContext& step,
                             program::Proof& proof) { proof.clipped = needs_norm(step.run, step.layout); }};
}

}  // namespace herd::strategies
