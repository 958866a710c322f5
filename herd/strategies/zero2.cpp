#include "herd/strategies/zero2.h"

#include <map>
#include <set>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

bool Zero2::is_whole_gradient(const Value& value) const {
  return is_plain_whole(value, ValueKind::kGradient) && axes_.of(value.index) != kNoAxis;
}

std::string Zero2::name() const { return "zero2"; }

program::Program Zero2::rewrite(program::Program step) const {
  for (auto& [value, info] : step.values) info.pooled = info.pooled || is_whole_gradient(value);
  std::erase_if(step.ops, [&](const Op& op) {
    return op.kind == OpKind::kReduceScatter && op.writes[0].kind == ValueKind::kGradient &&
           op.axis == axes_.of(op.writes[0].index);
  });
  // `begins` and `ends` hold the ops that begin and end a series of additions to a gradient, all of one micro-batch.
  // With several stages a rank, another micro-batch may come between, which ends the series.
  std::map<Value, std::set<size_t>> begins, ends;
  std::map<Value, size_t> last;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    for (const Value& value : step.ops[i].writes) {
      if (!is_whole_gradient(value)) continue;
      const auto previous = last.find(value);
      const bool continues =
          previous != last.end() && step.ops[previous->second].micro_batch == step.ops[i].micro_batch;
      if (continues) ends[value].erase(previous->second);
      if (!continues) begins[value].insert(i);
      ends[value].insert(i);
      last[value] = i;
    }
  }
  std::set<int> partly_summed;  // groups whose shards hold a part of the sum already
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    Op& op = step.ops[i];
    std::vector<Value> complete;
    for (const Value& value : op.writes) {
      if (!is_whole_gradient(value)) continue;
      if (begins.at(value).contains(i)) std::erase(op.reads, value);  // a series writes a new sum
      if (ends.at(value).contains(i)) complete.push_back(value);
    }
    ops.push_back(std::move(op));
    std::map<std::pair<int, bool>, Op> reduces;  // an op is along one axis, and adds to all of its shards or to none
    for (const Value& value : complete) {
      const int axis = axes_.of(value.index);
      Op& reduce = reduces[{axis, partly_summed.contains(value.index)}];
      reduce.axis = axis;
      reduce.reads.push_back(value);
      reduce.writes.push_back(program::gradient(value.index, program::kWhole.shard_on(axis)));
    }
    for (auto& [key, reduce] : reduces) {
      reduce.kind = OpKind::kReduceScatter, reduce.lane = program::Lane::kReduce;
      if (key.second) reduce.reads.insert(reduce.reads.end(), reduce.writes.begin(), reduce.writes.end());
      ops.push_back(std::move(reduce));
    }
    for (const Value& value : complete) partly_summed.insert(value.index);
  }
  step.ops = std::move(ops);
  return step;
}

Technique zero2_row() {
  return {.name = "zero2",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (zero_stage(step.run, step.layout) < 2) return nullptr;
            return std::make_unique<Zero2>(shard_axes(step));
          },
          .supports = {{"strategy.zero", {2}}},
          .in_equations = true,
          .alternatives = {zero_alternative<2>()}};
}

}  // namespace herd::strategies
