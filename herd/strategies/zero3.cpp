#include "herd/strategies/zero3.h"

#include <set>

#include "herd/program/message.h"
#include "herd/program/names.h"

namespace herd::strategies {

using program::Form;
using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

bool is_whole_weight(const Value& value) { return is_whole(value, ValueKind::kWeight); }

}  // namespace

std::string Zero3::name() const { return "zero3 on " + axis_; }

program::Program Zero3::rewrite(program::Program step) const {
  for (auto& [value, info] : step.values) {
    if (is_whole_weight(value)) info.persistent = false, info.pooled = true;
  }
  std::erase_if(step.ops, [&](const Op& op) { return op.kind == OpKind::kGather && op.axis == axis_; });
  std::set<int> held;  // groups that the pass before has gathered
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    std::set<int> used;
    for (const Value& value : op.reads) {
      if (!is_whole_weight(value)) continue;
      used.insert(value.index);
      if (held.contains(value.index)) continue;
      ops.push_back({.kind = OpKind::kGather,
                     .lane = program::Lane::kGather,
                     .reads = {program::weight(value.index, Form::kShard)},
                     .writes = {value},
                     .axis = axis_});
    }
    const bool passes = op.block >= 0;
    ops.push_back(std::move(op));
    if (passes) held = std::move(used);
  }
  step.ops = std::move(ops);
  return step;
}

}  // namespace herd::strategies
