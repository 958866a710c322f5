#include "herd/strategies/pipeline_parallel.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "herd/program/program_names.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/first_contributions.h"
#include "herd/strategies/pipeline_orders.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using spec::Pass;
using spec::PipelineOrder;
using spec::Turn;

namespace {

constexpr int64_t kMostStages = 128;  // stages that a search tries

using Ops = std::vector<Op>;

// Describes a value that a pass of one stage sends to a pass on another rank.
struct Transfer {
  int time = 0;  // tick at which the sending pass ends; no two passes of a rank end at once
  int from = 0, to = 0;
  Turn needed_by = {};  // the turn of rank `to` that reads the value
  Value value = {};
  int sender_block = 0, receiver_block = 0;
  std::pair<int, int> key() const { return {time, from}; }
};

std::vector<int> rank_of_stages(const PipelineOrder& order) {
  std::vector<int> out;
  for (int stage = 0; stage < order.stages(); ++stage) out.push_back(order.rank_of(stage));
  return out;
}

// Returns the blocks whose forward reads each tensor.
std::map<spec::TensorId, std::vector<int>> readers_in(const Program& step) {
  std::map<spec::TensorId, std::set<int>> readers;
  for (const Op& op : step.ops) {
    const bool forward = op.kind == OpKind::kForward || op.kind == OpKind::kLoss || op.kind == OpKind::kLogits;
    for (const Value& value : op.reads) {
      if (forward && value.kind == ValueKind::kActivation) readers[tensor_of(value)].insert(op.block);
    }
  }
  std::map<spec::TensorId, std::vector<int>> out;
  for (const auto& [tensor, blocks] : readers) out[tensor].assign(blocks.begin(), blocks.end());
  return out;
}

// Holds all transfers of a pipeline, in the order in which they are sent.
class Transfers {
 public:
  Transfers(const PipelineOrder& order, const std::vector<std::vector<int>>& times,
            const std::vector<int>& stage_of_blocks, const Program& step) {
    const auto tensors = border_tensors(readers_in(step), stage_of_blocks, rank_of_stages(order));
    for (int rank = 0; rank < order.ranks; ++rank) {
      const auto& turns = order.turns[static_cast<size_t>(rank)];
      for (size_t i = 0; i < turns.size(); ++i) {
        const bool forward = turns[i].pass == Pass::kForward;
        const int stage = order.stage_of(rank, turns[i].local_stage), next = forward ? stage + 1 : stage - 1;
        if (turns[i].pass == Pass::kWeights || next < 0 || next == order.stages()) continue;
        const int border = static_cast<int>(spec::blocks_of_stage(stage_of_blocks, std::max(stage, next)).begin);
        const int m = turns[i].micro_batch;
        for (const spec::TensorId tensor : tensors[static_cast<size_t>(std::min(stage, next))]) {
          const Value value = forward ? program::activation(tensor, m) : program::activation_gradient(tensor, m);
          if (!step.values.contains(value)) continue;  // a tensor without gradient
          all_.push_back({times[static_cast<size_t>(rank)][i],
                          rank,
                          order.rank_of(next),
                          {turns[i].pass, m, order.local_stage_of(next)},
                          value,
                          forward ? border - 1 : border,
                          forward ? border : border - 1});
        }
      }
    }
    std::stable_sort(all_.begin(), all_.end(), [](const Transfer& a, const Transfer& b) { return a.key() < b.key(); });
  }

  // Returns what a rank receives.
  std::vector<Transfer> received_by(int rank) const {
    std::vector<Transfer> out;
    for (const Transfer& transfer : all_) {
      if (transfer.to == rank) out.push_back(transfer);
    }
    return out;
  }

  // Returns what the pass of a rank that ends at `time` sends.
  std::span<const Transfer> sent_by(int rank, int time) const {
    const auto [begin, end] = std::ranges::equal_range(all_, std::pair(time, rank), {}, &Transfer::key);
    return {begin, end};
  }

 private:
  std::vector<Transfer> all_;
};

// Cuts the step of one rank out of the step of the whole model.
class StepOfRank {
 public:
  StepOfRank(Program& step, int axis, const PipelineOrder& order, const std::vector<int>& stage_of_blocks)
      : step_(step),
        axis_(axis),
        rank_(step.mesh.index(axis, step.rank)),
        order_(order),
        stage_of_blocks_(stage_of_blocks),
        readers_(readers_in(step)) {
    for (const Op& op : step.ops) {
      if (op.micro_batch < 0) {
        rest_.push_back(op);
      } else if (op.kind == OpKind::kLoad) {
        add_load(op);
      } else if (runs(op.block)) {
        const Pass pass = op.kind == OpKind::kBackwardWeight                         ? Pass::kWeights
                          : op.kind == OpKind::kBackward || op.kind == OpKind::kLoss ? Pass::kBackward
                                                                                     : Pass::kForward;
        passes_[{pass, op.micro_batch, order.local_stage_of(stage_of(op.block))}].push_back(op);
      }
    }
  }

  void write(const Transfers& transfers, const std::vector<int>& times) {
    const std::vector<Turn>& turns = order_.turns[static_cast<size_t>(rank_)];
    const std::vector<Transfer> incoming = transfers.received_by(rank_);
    std::map<Turn, size_t> num_before;  // how many transfers are received before a turn
    std::set<Value> values_received;
    for (size_t i = 0; i < incoming.size(); ++i) {
      num_before[incoming[i].needed_by] = i + 1;
      values_received.insert(incoming[i].value);
    }
    size_t received = 0;
    for (size_t i = 0; i < turns.size(); ++i) {
      for (const auto needed = num_before.find(turns[i]); needed != num_before.end() && received < needed->second;
           ++received)
        add_transfer(OpKind::kReceive, incoming[received]);
      for (const Op& op : sums_[turns[i]]) ops_.push_back(op);
      for (const Op& op : passes_[turns[i]]) add_pass(op);
      for (const Transfer& sent : transfers.sent_by(rank_, times[i])) {
        for (; values_received.contains(sent.value) && received < incoming.size() &&
               incoming[received].key() < sent.key();
             ++received)
          add_transfer(OpKind::kReceive, incoming[received]);
        add_transfer(OpKind::kSend, sent);
      }
    }
    let_first_contributions_write(ops_);  // another stage, or a pass that comes later here, may have begun a gradient
    for (const Op& op : rest_) {
      if (op.kind != OpKind::kStep || holds(op.reads[0].index)) ops_.push_back(op);
    }
    step_.ops = std::move(ops_);
    forget_other_stages();
  }

 private:
  int stage_of(int block) const { return stage_of_blocks_[static_cast<size_t>(block)]; }
  bool runs(int block) const { return order_.rank_of(stage_of(block)) == rank_; }

  // Each stage loads what its blocks read of the batch, and the last one the targets.
  void add_load(const Op& op) {
    for (int stage = 0; stage < order_.stages(); ++stage) {
      if (order_.rank_of(stage) != rank_) continue;
      Op part = op;
      std::erase_if(part.writes, [&](const Value& value) {
        if (value.kind == ValueKind::kTarget) return stage != order_.stages() - 1;
        const auto readers = readers_.find(tensor_of(value));
        return readers == readers_.end() ||
               std::ranges::none_of(readers->second, [&](int block) { return stage_of(block) == stage; });
      });
      if (!part.writes.empty())
        passes_[{Pass::kForward, op.micro_batch, order_.local_stage_of(stage)}].push_back(std::move(part));
    }
  }

  // The first contribution to a gradient of an activation begins it here, and later ones add to it.
  void add_pass(Op op) {
    for (const Value& value : op.writes) {
      if (value.kind != ValueKind::kActivationGradient) continue;
      std::erase(op.reads, value);
      if (!begun_.insert(value).second) op.reads.push_back(value);
    }
    ops_.push_back(std::move(op));
  }

  bool holds(int group) const {
    for (int b = 0; b < static_cast<int>(stage_of_blocks_.size()); ++b) {
      const auto& groups = step_.block_groups[static_cast<size_t>(b)];
      if (runs(b) && std::find(groups.begin(), groups.end(), group) != groups.end()) return true;
    }
    return false;
  }

  void add_transfer(OpKind kind, const Transfer& transfer) {
    const bool sends = kind == OpKind::kSend;
    Op op{.kind = kind,
          .lane = sends ? Lane::kPeerOut : Lane::kPeerIn,
          .block = sends ? transfer.sender_block : transfer.receiver_block,
          .micro_batch = transfer.value.micro_batch,
          .axis = axis_,
          .peer = sends ? transfer.to : transfer.from};
    (sends ? op.reads : op.writes) = {transfer.value};
    const bool is_gradient = transfer.value.kind == ValueKind::kActivationGradient;
    if (!sends && is_gradient && !begun_.insert(transfer.value).second) {
      // Blocks of a later stage of this rank have begun the gradient.
      const Value term = placed(transfer.value, transfer.value.placement.partial_on(axis_));
      step_.values[term] = step_.values.at(transfer.value);
      op.writes = {term};
      sums_[transfer.needed_by].push_back({.kind = OpKind::kAdd,
                                           .reads = {transfer.value, term},
                                           .writes = {transfer.value},
                                           .block = op.block,
                                           .micro_batch = op.micro_batch});
    }
    ops_.push_back(std::move(op));
  }

  void forget_other_stages() {
    std::set<Value> named;
    for (const Op& op : step_.ops) {
      for (const auto* side : {&op.reads, &op.writes}) named.insert(side->begin(), side->end());
    }
    std::erase_if(step_.values, [&](const auto& entry) { return !named.contains(entry.first); });
    std::erase_if(step_.scratch, [&](const auto& entry) { return !runs(entry.first.second); });
    std::erase_if(step_.kept, [&](const auto& entry) { return !runs(entry.first); });
  }

  Program& step_;
  const int axis_, rank_;
  const PipelineOrder& order_;
  const std::vector<int>& stage_of_blocks_;
  const std::map<spec::TensorId, std::vector<int>> readers_;  // by tensor: the blocks that read it
  std::map<Turn, Ops> passes_;
  std::map<Turn, Ops> sums_;  // by turn that needs them: additions of received gradients
  std::set<Value> begun_;     // gradients of activations that hold a contribution
  Ops rest_, ops_;
};

}  // namespace

PipelineParallel::PipelineParallel(int axis, std::vector<int> stage_of_blocks, PipelineOrder order, std::string name)
    : axis_(axis),
      stage_of_blocks_(std::move(stage_of_blocks)),
      order_(std::move(order)),
      times_(times_of(order_)),
      name_(std::move(name)) {}

Program PipelineParallel::rewrite(Program step) const {
  const Transfers transfers(order_, times_, stage_of_blocks_, step);
  StepOfRank rank(step, axis_, order_, stage_of_blocks_);
  rank.write(transfers, times_[static_cast<size_t>(step.mesh.index(axis_, step.rank))]);
  return step;
}

Technique pipeline_parallel_row() {
  return {
      .name = "pipeline",
      .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
        if (step.layout.pp == 1) return nullptr;
        return std::make_unique<PipelineParallel>(step.layout.stage_axis, step.stage_of_blocks,
                                                  pipeline_order(step.run, step.layout), step.run.strategy.pipeline);
      },
      .extend_proof = [](const StepContext& step, program::Proof& proof) { proof.staged = step.layout.pp > 1; },
      .supports = {{"mesh.pp", {}}, {"strategy.pipeline", {}}, {"strategy.stages_per_rank", {}}},
      .in_equations = true,
      .alternatives = {{.key = "mesh.pp", .values = [](const spec::RunFile& run, const RankCounts& ranks) {
                          std::vector<spec::KeyValue> sizes;
                          const int64_t max_stages = std::min<int64_t>({ranks.total, run.model.layers, kMostStages});
                          for (int64_t pp = 1; pp <= max_stages; pp *= 2) sizes.emplace_back(pp);
                          return sizes;
                        }}}};
}

}  // namespace herd::strategies
