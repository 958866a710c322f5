#include "herd/strategies/zero1.h"

#include <numeric>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/expert_parallel.h"

namespace herd::strategies {

using program::kWhole;
using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

void set_placement(std::vector<Value>& values, ValueKind kind, program::Placement placement) {
  for (Value& value : values) {
    if (is_plain_whole(value, kind)) value.placement = placement;
  }
}

bool sums_gradients(const Op& op, const ShardAxes& axes) {
  return op.kind == OpKind::kAllReduce && !op.writes.empty() && op.writes[0].kind == ValueKind::kGradient &&
         op.axis == axes.of(op.writes[0].index);
}

}  // namespace

std::string Zero1::name() const { return "zero1"; }

program::Program Zero1::rewrite(program::Program step) const {
  std::map<int, int64_t> weight_bytes;  // group -> bytes of its weights, before padding
  for (const auto& [value, info] : step.values) {
    const bool trained = step.values.contains(program::gradient(value.index));
    if (value.kind == ValueKind::kWeight && trained && axes_.of(value.index) != kNoAxis)
      weight_bytes[value.index] = info.bytes;
  }
  for (const auto& [group, bytes] : weight_bytes) {
    const int ranks = step.mesh.size(axes_.of(group));
    const program::Placement shards = kWhole.shard_on(axes_.of(group));
    const int64_t shard = spec::shard_bytes(bytes, ranks);
    const auto of_shard = [shard, whole_bytes = bytes](int64_t group_bytes) {  // scales bytes as those of weights
      const int64_t common = std::gcd(group_bytes, whole_bytes);
      return shard / (whole_bytes / common) * (group_bytes / common);
    };
    for (const Value& value : {program::weight(group), program::gradient(group)}) {
      program::ValueInfo& info = step.values.at(value);
      const int64_t part_bytes = of_shard(info.bytes);
      info.bytes = part_bytes * ranks;
      program::ValueInfo part = info;
      part.bytes = part_bytes;
      step.values[placed(value, shards)] = part;
    }
    auto states = step.values.extract(program::state(group));
    states.key().placement = shards;
    states.mapped().bytes = of_shard(states.mapped().bytes);
    step.values.insert(std::move(states));
  }
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    if (sums_gradients(op, axes_)) {
      op.kind = OpKind::kReduceScatter;
      set_placement(op.writes, ValueKind::kGradient, kWhole.shard_on(op.axis));
    }
    const int axis = op.kind == OpKind::kStep ? axes_.of(op.writes[0].index) : kNoAxis;
    const bool is_step = axis != kNoAxis;
    const program::Placement shards = kWhole.shard_on(axis);
    if (is_step) {
      for (const ValueKind kind : {ValueKind::kGradient, ValueKind::kWeight, ValueKind::kState}) {
        set_placement(op.reads, kind, shards);
        set_placement(op.writes, kind, shards);
      }
    }
    const int group = is_step ? op.reads[0].index : -1;
    ops.push_back(std::move(op));
    if (!is_step) continue;
    ops.push_back({.kind = OpKind::kAllGather,
                   .lane = program::Lane::kGather,
                   .reads = {program::weight(group, shards)},
                   .writes = {program::weight(group)},
                   .axis = axis});
  }
  step.ops = std::move(ops);
  return step;
}

int zero_stage(const spec::RunFile& run, const spec::Layout& layout) {
  return layout.gradient_ranks() > 1 ? spec::stated_zero_stage(run) : 0;
}

int shard_axis(const spec::RunFile& run, const spec::Layout& layout) {
  if (zero_stage(run, layout) == 0) return kNoAxis;
  return layout.fsdp > 1 ? layout.mesh.find("fsdp") : layout.gradient_axis;
}

ShardAxes shard_axes(const StepContext& step) {
  const bool cuts = zero_stage(step.run, step.layout) > 0;
  return {shard_axis(step.run, step.layout), groups_of_experts(step.model),
          cuts ? step.layout.expert_sum_axis : kNoAxis};
}

Technique zero1_row() {
  return {.name = "zero1",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (zero_stage(step.run, step.layout) == 0) return nullptr;
            return std::make_unique<Zero1>(shard_axes(step));
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                const ShardAxes axes = shard_axes(step);
                proof.shard_axis = axes.axis, proof.expert_shard_axis = axes.experts_axis;
              },
          .supports = {{"mesh.fsdp", {}}, {"strategy.zero", {1}}},
          .in_equations = true,
          .alternatives = {zero_alternative<1>()}};
}

}  // namespace herd::strategies
