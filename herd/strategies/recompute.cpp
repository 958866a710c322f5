#include "herd/strategies/recompute.h"

#include <algorithm>
#include <map>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/names.h"
#include "herd/spec/activations.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

bool is_graph(const Value& value) { return value.kind == ValueKind::kGraph; }

// From an op that writes output and graph: one that writes the graph alone.
Op recompute_of(Op forward) {
  forward.kind = OpKind::kRecompute;
  std::erase_if(forward.writes, [](const Value& value) { return !is_graph(value); });
  return forward;
}

}  // namespace

Recompute::Recompute(int every) : every_(every) {
  if (every < 1) {
    throw Error(Code::kBadConfig,
                "recompute every K blocks needs K >= 1, got " + std::to_string(every) + "\n  fix: every:1");
  }
}

std::string Recompute::name() const { return "recompute every " + std::to_string(every_); }

program::Program Recompute::rewrite(program::Program step) const {
  std::map<std::pair<int, int>, Op> forwards;  // (micro-batch, block) -> as it was, of the blocks that are recomputed
  for (const Op& op : step.ops) {
    const bool keeps_graph = std::any_of(op.writes.begin(), op.writes.end(), is_graph);
    if (op.kind == OpKind::kForward && op.block > 0 && keeps_graph)
      forwards.emplace(std::pair(op.micro_batch, op.block), op);
  }
  std::map<int, int> segment_begin;  // block -> first block of its segment
  if (!forwards.empty()) {
    const int first = forwards.begin()->first.second;
    for (const auto& [key, op] : forwards) segment_begin[key.second] = key.second - (key.second - first) % every_;
  }
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    if (op.kind == OpKind::kForward && op.block > 0) std::erase_if(op.writes, is_graph);
    const auto begin = op.kind == OpKind::kBackward ? segment_begin.find(op.block) : segment_begin.end();
    const auto after = segment_begin.find(op.block + 1);
    const bool ends_segment = after == segment_begin.end() || after->second == op.block + 1;
    if (begin != segment_begin.end() && ends_segment) {
      for (int block = begin->second; block < op.block; ++block) ops.push_back(forwards.at({op.micro_batch, block}));
      ops.push_back(recompute_of(forwards.at({op.micro_batch, op.block})));
    }
    ops.push_back(std::move(op));
  }
  for (const auto& [block, begin] : segment_begin) {
    const auto scratch = step.scratch.find({OpKind::kForward, block});
    if (scratch != step.scratch.end()) step.scratch[{OpKind::kRecompute, block}] = scratch->second;
  }
  step.ops = std::move(ops);
  return step;
}

int recompute_interval(const std::string& recompute, int transformer_blocks) {
  if (recompute == "full") return 1;
  if (recompute == "sqrt") return static_cast<int>(spec::sqrt_interval(transformer_blocks));
  if (recompute.starts_with("every:")) return std::stoi(recompute.substr(6));
  return 0;
}

}  // namespace herd::strategies
