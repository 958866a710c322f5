#include "herd/strategies/pipeline.h"

#include <algorithm>
#include <map>
#include <set>

#include "herd/program/names.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/pipeline_orders.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

namespace {

using Ops = std::vector<Op>;

// The step of one stage, out of the step of the whole model.
class Stage {
 public:
  Stage(Program& step, int axis, const std::vector<int>& stage_of_blocks)
      : step_(step), axis_(axis), stages_(step.mesh.size(axis)), stage_(step.mesh.index(axis, step.rank)) {
    const spec::BlockInterval blocks = spec::blocks_of_stage(stage_of_blocks, stage_);
    first_ = static_cast<int>(blocks.begin), last_ = static_cast<int>(blocks.end) - 1;
    for (const Op& op : step.ops) {
      if (op.micro_batch < 0) {
        rest_.push_back(op);
      } else if (op.kind == OpKind::kLoad) {
        load(op);
      } else if (op.block >= first_ && op.block <= last_) {
        const Pass pass = op.kind == OpKind::kBackwardWeight                         ? Pass::kWeights
                          : op.kind == OpKind::kBackward || op.kind == OpKind::kLoss ? Pass::kBackward
                                                                                     : Pass::kForward;
        passes_[{pass, op.micro_batch}].push_back(op);
      }
    }
  }

  void write(const std::vector<Turn>& turns) {
    for (const Turn& turn : turns) pass(turn);
    begin_gradients();
    for (const Op& op : rest_) {
      if (op.kind != OpKind::kStep || holds(op.reads[0].index)) ops_.push_back(op);
    }
    step_.ops = std::move(ops_);
    forget_other_stages();
  }

  int stage() const { return stage_; }

 private:
  // The first stage needs the tokens, the last one what should follow them.
  void load(Op op) {
    std::erase_if(op.writes, [&](const Value& value) {
      return value.kind == ValueKind::kTarget ? stage_ + 1 < stages_ : stage_ > 0;
    });
    if (!op.writes.empty()) passes_[{Pass::kForward, op.micro_batch}].push_back(std::move(op));
  }

  bool holds(int group) const {
    for (int b = first_; b <= last_; ++b) {
      const auto& groups = step_.block_groups[static_cast<size_t>(b)];
      if (std::find(groups.begin(), groups.end(), group) != groups.end()) return true;
    }
    return false;
  }

  // A stage below all that is trained has no backward, and nothing is sent there.
  void pass(const Turn& turn) {
    const auto found = passes_.find({turn.pass, turn.micro_batch});
    if (found == passes_.end()) return;
    const Ops& pass = found->second;
    if (turn.pass == Pass::kWeights) {  // the last block first, as in a whole backward
      ops_.insert(ops_.end(), pass.begin(), pass.end());
      return;
    }
    const bool backward = turn.pass == Pass::kBackward;
    const int m = turn.micro_batch;
    const Value in = backward ? program::activation_gradient(last_ + 1, m) : program::activation(first_, m);
    const Value out = backward ? program::activation_gradient(first_, m) : program::activation(last_ + 1, m);
    const int before = backward ? stage_ + 1 : stage_ - 1, after = backward ? stage_ - 1 : stage_ + 1;
    if (before >= 0 && before < stages_) message(OpKind::kReceive, in, backward ? last_ : first_, before);
    ops_.insert(ops_.end(), pass.begin(), pass.end());
    if (after >= 0 && after < stages_ && step_.values.contains(out))
      message(OpKind::kSend, out, backward ? first_ : last_, after);
  }

  void message(OpKind kind, const Value& value, int block, int peer) {
    const bool sends = kind == OpKind::kSend;
    Op op{.kind = kind,
          .lane = sends ? Lane::kPeerOut : Lane::kPeerIn,
          .block = block,
          .micro_batch = value.micro_batch,
          .axis = axis_,
          .peer = peer};
    (sends ? op.reads : op.writes) = {value};
    ops_.push_back(std::move(op));
  }

  // Another stage, or a pass that comes later here, may have begun a gradient that an op adds to: the first here begins
  // it.
  void begin_gradients() {
    std::set<Value> begun;
    for (Op& op : ops_) {
      for (const Value& value : op.writes) {
        if (value.kind != ValueKind::kGradient) continue;
        std::erase(op.reads, value);
        if (!begun.insert(value).second) op.reads.push_back(value);
      }
    }
  }

  void forget_other_stages() {
    std::set<Value> named;
    for (const Op& op : step_.ops) {
      for (const auto* side : {&op.reads, &op.writes}) named.insert(side->begin(), side->end());
    }
    std::erase_if(step_.values, [&](const auto& entry) { return !named.contains(entry.first); });
    std::erase_if(step_.scratch,
                  [&](const auto& entry) { return entry.first.second < first_ || entry.first.second > last_; });
  }

  Program& step_;
  const int axis_, stages_, stage_;
  int first_ = 0, last_ = 0;                    // blocks
  std::map<std::pair<Pass, int>, Ops> passes_;  // and micro-batch
  Ops rest_, ops_;
};

}  // namespace

std::string Pipeline::name() const { return "pipeline, " + order_; }

Program Pipeline::rewrite(Program step) const {
  Stage stage(step, axis_, stage_of_blocks_);
  stage.write(pipeline_order(order_, step.mesh.size(axis_), stage.stage(), step.micro_batches));
  return step;
}

}  // namespace herd::strategies
