#include "herd/strategies/zero2.h"

#include <map>
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

bool is_whole_gradient(const Value& value) { return is_whole(value, ValueKind::kGradient); }

}  // namespace

std::string Zero2::name() const { return "zero2"; }

program::Program Zero2::rewrite(program::Program step) const {
  for (auto& [value, info] : step.values) info.pooled = info.pooled || is_whole_gradient(value);
  std::erase_if(step.ops, [&](const Op& op) { return op.kind == OpKind::kReduceScatter && op.axis == axis_; });
  std::map<std::pair<Value, int>, size_t> completes;  // gradient, micro-batch -> the op that adds to it last
  for (size_t i = 0; i < step.ops.size(); ++i) {
    for (const Value& value : step.ops[i].writes) {
      if (is_whole_gradient(value)) completes[{value, step.ops[i].micro_batch}] = i;
    }
  }
  std::set<std::pair<Value, int>> begun;  // gradient, micro-batch
  std::set<int> held;                     // groups whose shards hold a part of the sum already
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    Op& op = step.ops[i];
    std::vector<Value> complete;
    for (const Value& value : op.writes) {
      if (!is_whole_gradient(value)) continue;
      if (begun.insert({value, op.micro_batch}).second) std::erase(op.reads, value);  // each micro-batch starts anew
      if (completes.at({value, op.micro_batch}) == i) complete.push_back(value);
    }
    ops.push_back(std::move(op));
    for (const bool adds : {false, true}) {  // an op adds to all of its shards, or to none
      Op reduce{
          .kind = OpKind::kReduceScatter, .lane = program::Lane::kReduce, .reads = {}, .writes = {}, .axis = axis_};
      for (const Value& value : complete) {
        if (held.contains(value.index) != adds) continue;
        reduce.reads.push_back(value);
        reduce.writes.push_back(program::gradient(value.index, Form::kShard));
      }
      if (reduce.reads.empty()) continue;
      if (adds) reduce.reads.insert(reduce.reads.end(), reduce.writes.begin(), reduce.writes.end());
      ops.push_back(std::move(reduce));
    }
    for (const Value& value : complete) held.insert(value.index);
  }
  step.ops = std::move(ops);
  return step;
}

}  // namespace herd::strategies
