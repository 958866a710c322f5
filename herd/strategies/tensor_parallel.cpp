#include "herd/strategies/tensor_parallel.h"

#include <algorithm>
#include <set>

#include "herd/base/check.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"

namespace herd::strategies {

using program::is_pass;
using program::kWhole;
using program::Lane;
using program::Op;
using program::OpKind;
using program::placed;
using program::Placement;
using program::Program;
using program::Value;
using program::ValueKind;
using spec::Split;

namespace {

// Rewrites a step so that tensor ranks share its cut blocks. Takes the ops in order.
class TensorSplitter {
 public:
  TensorSplitter(Program step, int axis, bool sequence, int64_t rows,
                 const std::vector<std::vector<spec::TensorId>>& inputs, const std::vector<bool>& gives_heads,
                 const std::set<spec::TensorId>& wholes, const std::vector<bool>& shares_choices)
      : step_(std::move(step)),
        axis_(axis),
        shard_(kWhole.shard_on(axis)),
        heads_(kWhole.shard_on(axis, program::Dimension::kHeads)),
        partial_(kWhole.partial_on(axis)),
        uncut_placement_(sequence ? shard_ : kWhole),
        rows_(rows),
        inputs_(inputs),
        gives_heads_(gives_heads),
        wholes_(wholes),
        shares_choices_(shares_choices) {}

  Program rewrite(const std::vector<Split>& splits) {
    for (Op& op : step_.ops) {
      if (is_pass(op) && splits[static_cast<size_t>(op.block)] == Split::kCut)
        add_cut(std::move(op));
      else
        add_uncut(std::move(op));
    }
    step_.ops = std::move(ops_);
    drop_unused_values();
    return std::move(step_);
  }

 private:
  // Says whether tensor ranks may hold the value in parts. Tokens, which are activation 0, are whole on every rank.
  bool is_shared(const Value& value) const {
    return ((value.kind == ValueKind::kActivation && value.index > 0) ||
            value.kind == ValueKind::kActivationGradient) &&
           !wholes_.contains(tensor_of(value));
  }

  // Tells whether each rank has the tensor of its own heads, or its gradient.
  bool is_by_heads(const Value& value) const { return gives_heads_[static_cast<size_t>(value.index) - 1]; }

  // Adds an op of a block that is not cut. Its activations are shards, or whole without sequence parallel.
  void add_uncut(Op op) {
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) {
        if (is_shared(value)) value = declare(placed(value, uncut_placement_));
      }
    }
    const bool runs_block = is_pass(op) && op.kind != OpKind::kBackwardWeight;
    if (runs_block && shares_choices_[static_cast<size_t>(op.block)]) op.axis = axis_;
    ops_.push_back(std::move(op));
  }

  // Leaves the gathered inputs of a block out of its graph; its backward reads them as values of their own.
  void leave_inputs_out(Op& op) {
    const std::vector<spec::TensorId>& inputs = inputs_[static_cast<size_t>(op.block)];
    bool has_graph = false;
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) {
        if (value.kind != ValueKind::kGraph) continue;
        has_graph = true;
        const Value without_inputs = placed(value, shard_);
        if (const auto info = step_.values.extract(value); !info.empty()) step_.values[without_inputs] = info.mapped();
        value = without_inputs;
      }
    }
    if (!has_graph || op.kind != OpKind::kBackward) return;
    for (const spec::TensorId input : inputs) op.reads.push_back(program::activation(input, op.micro_batch));
  }

  // Gathers the shards that the op reads. A backward after a recompute of its block finds what that has gathered: no
  // other cut block comes between. This takes no memory at the peak, which is in backward.
  void gather_inputs(const Op& op) {
    if (uncut_placement_ != shard_) return;
    std::set<Value> gathered;
    for (const Value& value : op.reads) {
      if (!is_shared(value) || is_by_heads(value)) continue;
      const bool is_gathered = op.kind == OpKind::kBackward && recomputed_from_.contains(value);
      if (!is_gathered) add_collective(OpKind::kAllGather, declare(placed(value, shard_)), declare(value));
      if (op.kind == OpKind::kRecompute) gathered.insert(value);
    }
    recomputed_from_ = std::move(gathered);
  }

  void add_cut(Op op) {
    if (!inputs_.empty() && !inputs_[static_cast<size_t>(op.block)].empty()) leave_inputs_out(op);
    std::vector<Value> sums;
    gather_inputs(op);
    for (Value& value : op.reads) {
      if (is_shared(value) && is_by_heads(value)) value = declare_heads(value);
    }
    for (Value& value : op.writes) {
      if (!is_shared(value)) continue;
      if (is_by_heads(value)) {
        value = declare_heads(value);
        continue;
      }
      HERD_CHECK(std::find(op.reads.begin(), op.reads.end(), value) == op.reads.end(),
                 "a cut block adds to " + program::value_name(step_.mesh, value));
      sums.push_back(value);
      value = declare(placed(value, partial_));
    }
    if (op.kind == OpKind::kLoss) op.axis = axis_;
    ops_.push_back(std::move(op));
    for (const Value& value : sums) {
      add_collective(uncut_placement_ == shard_ ? OpKind::kReduceScatter : OpKind::kAllReduce, placed(value, partial_),
                     declare(placed(value, uncut_placement_)));
    }
  }

  void add_collective(OpKind kind, const Value& from, const Value& to) {
    ops_.push_back({.kind = kind, .lane = Lane::kActivations, .reads = {from}, .writes = {to}, .axis = axis_});
  }

  // Adds the value to the values of the step, and returns it. All shards have the same size, so the last ones may hold
  // padding. A whole value that is gathered from shards, or scattered, has the size of all of them.
  Value declare(const Value& value) {
    if (value.placement.is_whole() && uncut_placement_.is_whole()) return value;
    program::ValueInfo info = step_.values.at(placed(value, kWhole));
    if (padded_wholes_.insert(placed(value, kWhole)).second && uncut_placement_ == shard_) {
      const int64_t ranks = step_.mesh.size(axis_);
      info.bytes = info.bytes / rows_ * ((rows_ + ranks - 1) / ranks) * ranks;
      step_.values.at(placed(value, kWhole)) = info;
    }
    if (value.placement == shard_) info.bytes /= step_.mesh.size(axis_);
    if (!value.placement.is_whole()) step_.values[value] = info;
    return value;
  }

  // The table counts the bytes of this rank's heads.
  Value declare_heads(const Value& value) {
    const Value own = placed(value, heads_);
    step_.values[own] = step_.values.at(value);
    return own;
  }

  void drop_unused_values() {
    std::set<Value> used;
    for (const Op& op : step_.ops) {
      for (const auto* side : {&op.reads, &op.writes}) used.insert(side->begin(), side->end());
    }
    std::erase_if(step_.values,
                  [&](const auto& entry) { return is_shared(entry.first) && !used.contains(entry.first); });
  }

  Program step_;
  const int axis_;
  const Placement shard_, heads_, partial_;
  const Placement uncut_placement_;  // of activations between cut blocks
  const int64_t rows_;
  const std::vector<std::vector<spec::TensorId>>& inputs_;
  const std::vector<bool>& gives_heads_;  // by block
  const std::set<spec::TensorId>& wholes_;
  const std::vector<bool>& shares_choices_;  // by block
  std::set<Value> padded_wholes_;            // whole values whose bytes are those of all shards
  std::set<Value> recomputed_from_;          // what the last cut op gathered, if it was a recompute
  std::vector<Op> ops_;
};

// Returns the sizes of a tensor axis within a host that divide the model.
std::vector<spec::KeyValue> tensor_ranks(const spec::RunFile& run, const RankCounts& ranks) {
  std::vector<spec::KeyValue> sizes;
  const auto& model = run.model;
  if (model.is_moe()) return {spec::KeyValue(int64_t{1})};
  for (int64_t tp = 1; tp <= std::max<int64_t>(run.mesh.tp, ranks.per_host); tp *= 2) {
    const bool divides_keys = model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
    spec::RunFile of_size = run;
    of_size.mesh.tp = tp;
    if (ranks.total % tp == 0 && model.heads % tp == 0 && divides_keys && model.ffn % tp == 0 &&
        exchanges_whole_heads(of_size))
      sizes.emplace_back(tp);
  }
  return sizes;
}

}  // namespace

TensorParallel::TensorParallel(int axis, const spec::ModelTable& model, bool keeps_gathered)
    : axis_(axis), rows_(model.tokens) {
  for (const spec::BlockShape& block : model.blocks) {
    splits_.push_back(block.split);
    gives_heads_.push_back(block.gives_heads);
    shares_choices_.push_back(block.shares_choices);
  }
  wholes_ = whole_tensors(model);
  sequence_parallel_ = std::ranges::count(splits_, Split::kSequence) > 0;
  if (!sequence_parallel_ || keeps_gathered) return;
  for (int b = 0; b < static_cast<int>(model.blocks.size()); ++b) {
    std::vector<spec::TensorId> inputs;
    if (splits_[static_cast<size_t>(b)] == Split::kCut) inputs = model.inputs_of(b);
    std::erase_if(inputs, [&](spec::TensorId input) {  // tokens, and what is not gathered
      return input.producer == 0 || wholes_.contains(input) || gives_heads_[static_cast<size_t>(input.producer) - 1];
    });
    inputs_.push_back(std::move(inputs));
  }
}

std::string TensorParallel::name() const {
  return sequence_parallel_
             ? std::string("tensor and sequence parallel") + (inputs_.empty() ? "" : ", inputs gathered again")
             : "tensor parallel";
}

Program TensorParallel::rewrite(Program step) const {
  return TensorSplitter(std::move(step), axis_, sequence_parallel_, rows_, inputs_, gives_heads_, wholes_,
                        shares_choices_)
      .rewrite(splits_);
}

std::set<spec::TensorId> whole_tensors(const spec::ModelTable& model) {
  std::set<spec::TensorId> wholes;
  for (int b = 0; b < static_cast<int>(model.blocks.size()); ++b) {
    const auto& outputs = model.blocks[static_cast<size_t>(b)].outputs;
    for (int tensor = 0; tensor < static_cast<int>(outputs.size()); ++tensor) {
      if (outputs[static_cast<size_t>(tensor)].is_whole) wholes.emplace(b + 1, tensor);
    }
  }
  return wholes;
}

std::map<int, int> axes_of_copies(const spec::ModelTable& model, const spec::Layout& layout) {
  std::map<int, int> axes;
  if (!model.is_split()) return axes;
  for (size_t g = 0; g < model.groups.size(); ++g) {
    const int copies = model.groups[g].max_copies();
    if (copies > 1) axes[static_cast<int>(g)] = copies == layout.tp ? layout.tensor_axis : layout.key_copies_axis;
  }
  return axes;
}

std::vector<int> groups_of_sequence_blocks(const spec::ModelTable& model) {
  std::set<int> groups;
  for (const spec::BlockShape& block : model.blocks) {
    if (block.split == Split::kSequence) groups.insert(block.groups.begin(), block.groups.end());
  }
  return {groups.begin(), groups.end()};
}

Technique tensor_parallel_row() {
  return {.name = "tensor parallel",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!step.split) return nullptr;
            return std::make_unique<TensorParallel>(step.layout.tensor_axis, step.model,
                                                    step.run.strategy.keep_gathered);
          },
          .extend_proof = [](const StepContext& step, program::Proof& proof) { proof.blocks_split = step.split; },
          .supports = {{"mesh.tp", {}}, {"strategy.sequence_parallel", {}}, {"strategy.keep_gathered", {}}},
          .in_equations = true,
          .alternatives = {{.key = "mesh.tp", .values = tensor_ranks},
                           {.key = "strategy.keep_gathered",
                            .automatic = true,
                            .values = [](const spec::RunFile& run, const RankCounts&) {
                              return values_if(run.mesh.tp > 1 && run.strategy.sequence_parallel, false);
                            }}}};
}

}  // namespace herd::strategies
