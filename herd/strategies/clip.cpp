#include "herd/strategies/clip.h"

#include <algorithm>

#include "herd/program/names.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

std::string Clip::name() const { return "clip"; }

program::Program Clip::rewrite(program::Program step) const {
  const auto first_step =
      std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) { return op.kind == OpKind::kStep; });
  std::vector<Op> ops(step.ops.begin(), first_step);
  Op clip{.kind = OpKind::kClip, .reads = {}, .writes = {program::factor()}};
  for (auto op = first_step; op != step.ops.end(); ++op) {
    if (op->kind != OpKind::kStep) continue;
    for (const Value& value : op->reads) {
      if (value.kind != ValueKind::kGradient) continue;
      const Value norm = program::norm(value.index);
      ops.push_back({.kind = OpKind::kNorm, .lane = op->lane, .reads = {value}, .writes = {norm}});
      clip.reads.push_back(norm);
      clip.lane = op->lane;
      step.values[norm] = {8, step.values.at(value).tier, false, -1};
    }
  }
  if (shard_axis_ != kNoAxis && !clip.reads.empty()) {
    ops.push_back({.kind = OpKind::kAllReduce,
                   .lane = program::Lane::kReduce,
                   .reads = clip.reads,
                   .writes = clip.reads,
                   .axis = shard_axis_});
  }
  step.values[program::factor()] = {8, program::Tier::kHost, false, -1};
  ops.push_back(clip);
  for (auto op = first_step; op != step.ops.end(); ++op) {
    ops.push_back(*op);
    if (op->kind == OpKind::kStep) ops.back().reads.push_back(program::factor());
  }
  step.ops = std::move(ops);
  return step;
}

}  // namespace herd::strategies
