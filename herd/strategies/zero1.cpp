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

bool sums_gradients(const Op& op, int axis) {
  return op.kind == OpKind::kAllReduce && op.axis == axis && !op.writes.empty() &&
         op.writes[0].kind == ValueKind::kGradient;
}

}  // namespace

std::string Zero1::name() const { return "zero1"; }

program::Program Zero1::rewrite(program::Program step) const {
  const int ranks = step.mesh.size(axis_);
  const program::Placement shards = kWhole.shard_on(axis_);
  std::map<int, int64_t> weight_bytes;  // group -> bytes of its weights, before padding
  for (const auto& [value, info] : step.values) {
    const bool trained = step.values.contains(program::gradient(value.index));
    if (value.kind == ValueKind::kWeight && trained && !uncut_.contains(value.index))
      weight_bytes[value.index] = info.bytes;
  }
  for (const auto& [group, bytes] : weight_bytes) {
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
    if (sums_gradients(op, axis_)) {
      op.kind = OpKind::kReduceScatter;
      set_placement(op.writes, ValueKind::kGradient, shards);
    }
    const bool is_step = op.kind == OpKind::kStep && !uncut_.contains(op.writes[0].index);
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
                   .axis = axis_});
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

Technique zero1_row() {
  return {.name = "zero1",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const int axis = shard_axis(step.run, step.layout);
            return axis == kNoAxis ? nullptr : std::make_unique<Zero1>(axis, groups_of_experts(step.model));
          },
          .extend_proof = [](const StepContext& step,
                             program::Proof& proof) { proof.shard_axis = shard_axis(step.run, step.layout); },
          .supports = {{"mesh.fsdp", {}}, {"strategy.zero", {1}}},
          .in_equations = true,
          .alternatives = {zero_alternative<1>()}};
}

}  // namespace herd::strategies
