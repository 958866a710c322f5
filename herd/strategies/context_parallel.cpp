#include "herd/strategies/context_parallel.h"

#include <algorithm>
#include <map>
#include <set>

#include "herd/base/check.h"
#include "herd/program/collective_message.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Dimension;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

namespace {

// Tells whether ranks have parts of the value. Of tokens, which are activation 0, each rank loads its own.
bool is_cut(const Value& value) { return is_activation_or_gradient(value) && value.index > 0; }

}  // namespace

ContextParallel::ContextParallel(int axis, int sequence_axis, const spec::ModelTable& model)
    : axis_(axis), sequence_axis_(sequence_axis) {
  for (int b = 0; b < static_cast<int>(model.blocks.size()); ++b) {
    cut_by_.push_back(model.blocks[static_cast<size_t>(b)].by_heads ? Dimension::kHeads : Dimension::kRows);
    inputs_.push_back(model.inputs_of(b));
    in_ring_.push_back(model.blocks[static_cast<size_t>(b)].in_ring);
    shares_choices_.push_back(model.blocks[static_cast<size_t>(b)].shares_choices);
  }
}

std::string ContextParallel::name() const {
  return std::string("context parallel, ") + (std::ranges::count(in_ring_, true) > 0 ? "ring" : "all-to-all");
}

Program ContextParallel::rewrite(Program step) const {
  std::map<spec::TensorId, Dimension> read_by;  // the dimension in which the readers of a tensor need it
  for (size_t b = 0; b < inputs_.size(); ++b) {
    for (const spec::TensorId tensor : inputs_[b]) {
      const auto [reader, is_first] = read_by.emplace(tensor, cut_by_[b]);
      HERD_CHECK(is_first || reader->second == cut_by_[b] || tensor.producer == 0,
                 "blocks read a tensor cut along two dimensions");
    }
  }
  std::set<Value> used;
  const auto declare = [&](Value value, Dimension by) {
    const program::ValueInfo info = step.values.at(value);
    value.placement = value.placement.shard_on(axis_, by);
    used.insert(value);
    step.values[value] = info;  // its bytes are those of a rank's part already
    return value;
  };
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    const bool runs_block = is_pass(op);
    const Dimension own = runs_block ? cut_by_[static_cast<size_t>(op.block)] : Dimension::kRows;
    std::vector<std::pair<Value, Dimension>> exchanged;  // what the op gives, and the dimension in which it is needed
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) {
        if (!is_cut(value)) continue;
        const bool is_output = value.kind == ValueKind::kActivation;
        if (side == &op.writes && runs_block) {
          const Dimension needed =
              is_output ? read_by.at(tensor_of(value)) : cut_by_[static_cast<size_t>(value.index) - 1];
          const bool adds = std::ranges::count(op.reads, placed(value, value.placement.shard_on(axis_, own))) > 0;
          if (needed != own) {
            HERD_CHECK(!adds, "a block adds to a gradient that is exchanged");
            exchanged.emplace_back(value, needed);
          }
        }
        value = declare(value, own);
      }
    }
    const bool runs_together = runs_block && op.kind != OpKind::kBackwardWeight;
    if (runs_together && in_ring_[static_cast<size_t>(op.block)]) op.axis = axis_;
    if (runs_together && shares_choices_[static_cast<size_t>(op.block)]) op.axis = sequence_axis_;
    ops.push_back(std::move(op));
    for (const auto& [value, needed] : exchanged) {
      ops.push_back({.kind = OpKind::kAllToAll,
                     .lane = program::Lane::kActivations,
                     .reads = {placed(value, value.placement.shard_on(axis_, own))},
                     .writes = {declare(value, needed)},
                     .axis = axis_});
    }
  }
  step.ops = std::move(ops);
  std::erase_if(step.values, [&](const auto& entry) { return is_cut(entry.first) && !used.contains(entry.first); });
  return step;
}

Technique context_parallel_row() {
  return {.name = "context parallel",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.layout.context_axis == kNoAxis) return nullptr;
            return std::make_unique<ContextParallel>(step.layout.context_axis, step.layout.sequence_axis, step.model);
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.tokens_cut = true; },
          .supports = {{"mesh.cp", {}}, {"strategy.context", {std::string("ring")}}}};
}

}  // namespace herd::strategies
