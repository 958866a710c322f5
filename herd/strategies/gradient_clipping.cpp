#include "herd/strategies/gradient_clipping.h"

#include <algorithm>

#include "herd/program/program_names.h"
#include "herd/strategies/tensor_parallel.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

std::string GradientClipping::name() const { return "clip"; }

// Whether this rank is the one of those which have the same that counts it.
bool GradientClipping::counts(const program::Program& step, int group) const {
  const int stage = step.mesh.index(axes_.stages, step.rank);
  const bool here = counted_.empty() || counted_[static_cast<size_t>(stage)].contains(group);
  if (!cut_.contains(group)) return here && step.mesh.index(axes_.tensor, step.rank) == 0;
  return here && (!copied_.contains(group) || step.mesh.index(axes_.copies, step.rank) == 0);
}

program::Program GradientClipping::rewrite(program::Program step) const {
  const auto first_step =
      std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) { return op.kind == OpKind::kStep; });
  std::vector<Op> ops(step.ops.begin(), first_step);
  const bool one_sum = axes_.stages != kNoAxis || axes_.tensor != kNoAxis;
  Op clip{.kind = OpKind::kClip, .reads = {}, .writes = {program::factor()}};
  Op all{.kind = OpKind::kNorm, .reads = {}, .writes = {program::norm(0)}};
  for (auto op = first_step; op != step.ops.end(); ++op) {
    if (op->kind != OpKind::kStep) continue;
    for (const Value& value : op->reads) {
      if (value.kind != ValueKind::kGradient) continue;
      clip.lane = all.lane = op->lane;
      if (one_sum) {
        if (counts(step, value.index)) all.reads.push_back(value);
        continue;
      }
      const Value norm = program::norm(value.index);
      ops.push_back({.kind = OpKind::kNorm, .lane = op->lane, .reads = {value}, .writes = {norm}});
      clip.reads.push_back(norm);
      step.values[norm] = {.bytes = 8};
    }
  }
  if (one_sum) {
    ops.push_back(all);
    clip.reads = all.writes;
    step.values[program::norm(0)] = {.bytes = 8};
  }
  for (const int axis : {axes_.shards, axes_.tensor, axes_.stages}) {
    if (axis == kNoAxis || clip.reads.empty()) continue;
    ops.push_back({.kind = OpKind::kAllReduce,
                   .lane = program::Lane::kReduce,
                   .reads = clip.reads,
                   .writes = clip.reads,
                   .axis = axis});
  }
  step.values[program::factor()] = {.bytes = 8};
  ops.push_back(clip);
  for (auto op = first_step; op != step.ops.end(); ++op) {
    ops.push_back(*op);
    if (op->kind == OpKind::kStep) ops.back().reads.push_back(program::factor());
  }
  step.ops = std::move(ops);
  return step;
}

bool needs_norm(const spec::RunFile& run) {
  return run.optimizer.clip > 0 || run.health.check_finite || run.strategy.precision == "fp16";
}

Technique gradient_clipping_row() {
  return {.name = "clip",
          .asked = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!needs_norm(step.run)) return nullptr;
            std::set<int> cut, copied;
            for (const spec::BlockShape& block : step.model.blocks) {
              if (block.split == spec::Split::kCut) cut.insert(block.groups.begin(), block.groups.end());
            }
            for (const int group : groups_with_copies(step.model)) copied.insert(group);
            const ClipAxes axes{shard_axis(step.run, step.layout), step.layout.stage_axis,
                                step.split ? step.layout.tensor_axis : kNoAxis, step.layout.key_copies_axis};
            return std::make_unique<GradientClipping>(axes, step.stages.first_held_groups, cut, copied);
          },
          .establishes = [](const StepContext& step, program::Proof& proof) { proof.clipped = needs_norm(step.run); }};
}

}  // namespace herd::strategies
