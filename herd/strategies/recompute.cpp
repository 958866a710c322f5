#include "herd/strategies/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/program_names.h"
#include "herd/spec/activations.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

bool is_graph(const Value& value) { return value.kind == ValueKind::kGraph; }

// Makes an op that writes the graph alone out of one that writes output and graph.
Op recompute_of(Op forward) {
  forward.kind = OpKind::kRecompute;
  std::erase_if(forward.writes, [](const Value& value) { return !is_graph(value); });
  return forward;
}

// Returns the ops that make the graphs of a segment's blocks again, in order. Graphs of no bytes need not be made.
template <class IsEmpty>
std::vector<Op> run_again(const std::map<int, Op>& forwards, const std::vector<int>& blocks, const IsEmpty& is_empty) {
  std::vector<Op> ops;
  std::set<Value> needed;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    Op op = forwards.at(*block);
    const bool writes_needed =
        std::any_of(op.writes.begin(), op.writes.end(), [&](const Value& v) { return needed.contains(v); });
    const bool makes_graph = !is_empty(*std::find_if(op.writes.begin(), op.writes.end(), is_graph));
    if (!writes_needed && !makes_graph) continue;
    if (!writes_needed) op = recompute_of(std::move(op));
    std::erase_if(op.writes, [&](const Value& v) { return !is_graph(v) && !needed.contains(v); });
    if (!makes_graph) std::erase_if(op.writes, is_graph);
    std::erase_if(op.writes, [&](const Value& value) { return !is_graph(value) && !needed.contains(value); });
    needed.insert(op.reads.begin(), op.reads.end());
    ops.push_back(std::move(op));
  }
  std::reverse(ops.begin(), ops.end());
  return ops;
}

}  // namespace

Recompute::Recompute(int every, std::vector<int> layers, std::vector<int> stages, std::map<int, int64_t> scratch,
                     std::map<int, int64_t> routing_bytes)
    : every_(every),
      layers_(std::move(layers)),
      stages_(std::move(stages)),
      scratch_without_graph_(std::move(scratch)),
      routing_bytes_(std::move(routing_bytes)) {
  if (every < 1) {
    throw Error(Code::kBadConfig,
                "recompute every K blocks needs K >= 1, got " + std::to_string(every) + "\n  fix: every:1");
  }
}

std::string Recompute::name() const { return "recompute every " + std::to_string(every_); }

program::Program Recompute::rewrite(program::Program step) const {
  std::map<int, std::map<int, Op>> forwards;  // by micro-batch and block: forwards that are recomputed
  std::map<int, std::vector<int>> segments;   // by its last block: the blocks of a segment
  for (const Op& op : step.ops) {
    const bool keeps_graph = std::any_of(op.writes.begin(), op.writes.end(), is_graph);
    const int layer = op.kind == OpKind::kForward ? layers_[static_cast<size_t>(op.block)] : 0;
    if (layer > 0 && layer < layers_.back() && keeps_graph) forwards[op.micro_batch].emplace(op.block, op);
  }
  std::vector<int> segment;
  const auto end_segment = [&] {
    if (!segment.empty()) segments[segment.back()] = segment;
    segment.clear();
  };
  const auto layer_of = [&](int block) { return layers_[static_cast<size_t>(block)]; };
  const auto stage_of = [&](int block) { return stages_.empty() ? 0 : stages_[static_cast<size_t>(block)]; };
  if (!forwards.empty()) {
    for (const auto& [block, op] : forwards.begin()->second) {
      const bool ends = !segment.empty() && (layer_of(block) >= layer_of(segment.front()) + every_ ||
                                             stage_of(block) != stage_of(segment.back()));
      if (ends) end_segment();
      segment.push_back(block);
    }
  }
  end_segment();
  const auto is_empty = [&](const Value& graph) {
    return step.values.at(graph).bytes == 0 && !step.kept.contains(graph.index);
  };
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    const bool recomputed =
        op.kind == OpKind::kForward && forwards.contains(op.micro_batch) && forwards[op.micro_batch].contains(op.block);
    if (recomputed) std::erase_if(op.writes, [&](const Value& value) { return is_graph(value) && !is_empty(value); });
    if (const auto routed = routing_bytes_.find(op.block); recomputed && routed != routing_bytes_.end()) {
      const Value choices = program::routing(op.block, op.micro_batch);
      step.values[choices] = {.bytes = routed->second};
      op.writes.push_back(choices);
      forwards[op.micro_batch].at(op.block).reads.push_back(choices);
    }
    if (const auto ending = segments.find(op.block); op.kind == OpKind::kBackward && ending != segments.end()) {
      const std::vector<Op> recomputed_ops = run_again(forwards.at(op.micro_batch), ending->second, is_empty);
      ops.insert(ops.end(), recomputed_ops.begin(), recomputed_ops.end());
    }
    ops.push_back(std::move(op));
  }
  for (const auto& [last, blocks] : segments) {
    for (const int block : blocks) set_scratch(step, forwards.begin()->second.at(block));
  }
  step.ops = std::move(ops);
  return step;
}

void Recompute::set_scratch(program::Program& step, const Op& forward) const {
  const auto of_forward = step.scratch.find({OpKind::kForward, forward.block});
  int64_t scratch = of_forward == step.scratch.end() ? 0 : of_forward->second;
  const auto without_graph = scratch_without_graph_.find(forward.block);
  if (without_graph != scratch_without_graph_.end()) {
    step.scratch[{OpKind::kForward, forward.block}] = std::max(scratch, without_graph->second);
    // What a pass gives, and nobody needs again, lives until the pass ends.
    const auto kept = step.kept.find(forward.block);
    for (const Value& value : forward.writes) {
      const bool is_kept = kept != step.kept.end() && std::ranges::count(kept->second, tensor_of(value)) > 0;
      if (!is_graph(value) && !is_kept) scratch += step.values.at(value).bytes;
    }
  }
  if (scratch > 0) step.scratch[{OpKind::kRecompute, forward.block}] = scratch;
}

int recompute_interval(const std::string& recompute, int layers) {
  if (recompute == "full") return 1;
  if (recompute == "sqrt") return static_cast<int>(spec::sqrt_interval(std::max(layers, 1)));
  if (recompute.starts_with("every:")) return std::stoi(recompute.substr(6));
  return 0;
}

Technique recompute_row() {
  return {.name = "recompute",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const int every = recompute_interval(step.run.strategy.recompute, step.layers.back() - 1);
            if (every == 0) return nullptr;
            std::map<int, int64_t> scratch;
            for (size_t b = 0; step.model.is_chain() && b < step.model.blocks.size(); ++b)
              scratch[static_cast<int>(b)] = step.model.blocks[b].without_graph.scratch_bytes;
            std::map<int, int64_t> routing_bytes;
            for (size_t b = 0; b < step.model.blocks.size(); ++b) {
              const int64_t bytes = step.model.blocks[b].routing_bytes;
              if (bytes > 0) routing_bytes[static_cast<int>(b)] = bytes;
            }
            return std::make_unique<Recompute>(every, step.layers, step.stage_of_blocks, std::move(scratch),
                                               std::move(routing_bytes));
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                proof.routing_kept = recompute_interval(step.run.strategy.recompute, step.layers.back() - 1) > 0;
              },
          .supports = {{"strategy.recompute", {}}},
          .in_equations = true,
          .alternatives = {{.key = "strategy.recompute",
                            .automatic = true,
                            .values = [](const spec::RunFile& run, const RankCounts&) {
                              std::vector<spec::KeyValue> modes = {"none", "sqrt", "full"};
                              // Without dropout attention keeps no T x T matrix that selective recompute could spare.
                              if (run.model.dropout > 0) modes.insert(modes.begin() + 1, "selective");
                              return modes;
                            }}}};
}

}  // namespace herd::strategies
