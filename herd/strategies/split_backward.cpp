#include "herd/strategies/split_backward.h"

#include <algorithm>

#include "herd/program/program_names.h"
#include "herd/strategies/pipeline_orders.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

// Takes the gradients of weights out of `from` and returns them.
std::vector<Value> taken_gradients(std::vector<Value>& from) {
  std::vector<Value> out;
  std::copy_if(from.begin(), from.end(), std::back_inserter(out),
               [](const Value& value) { return value.kind == ValueKind::kGradient; });
  std::erase_if(from, [](const Value& value) { return value.kind == ValueKind::kGradient; });
  return out;
}

}  // namespace

SplitBackward::SplitBackward(const spec::ModelTable& model) {
  for (const spec::BlockShape& block : model.blocks) {
    pending_bytes_.push_back(block.pending_bytes);
    scratch_bytes_.push_back(block.first_half_scratch_bytes);
    second_half_scratch_bytes_.push_back(block.second_half_scratch_bytes);
  }
}

std::string SplitBackward::name() const { return "backward in two halves"; }

program::Program SplitBackward::rewrite(program::Program step) const {
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    const bool splits =
        (op.kind == OpKind::kBackward || op.kind == OpKind::kLoss) &&
        pending_bytes_[static_cast<size_t>(op.block)] > 0 &&
        std::ranges::any_of(op.writes, [](const Value& value) { return value.kind == ValueKind::kActivationGradient; });
    if (!splits) {
      ops.push_back(std::move(op));
      continue;
    }
    const Value pending = program::pending(op.block, op.micro_batch);
    Op weights{.kind = OpKind::kBackwardWeight,
               .reads = {pending},
               .writes = taken_gradients(op.writes),
               .block = op.block,
               .micro_batch = op.micro_batch};
    const std::vector<Value> earlier_sums = taken_gradients(op.reads);
    weights.reads.insert(weights.reads.end(), earlier_sums.begin(), earlier_sums.end());
    if (weights.writes.empty()) {  // all parameters of the block are frozen
      ops.push_back(std::move(op));
      continue;
    }
    step.scratch[{op.kind, op.block}] = scratch_bytes_[static_cast<size_t>(op.block)];
    step.scratch[{OpKind::kBackwardWeight, op.block}] = second_half_scratch_bytes_[static_cast<size_t>(op.block)];
    step.values[pending] = {.bytes = pending_bytes_[static_cast<size_t>(op.block)]};
    op.writes.push_back(pending);
    ops.push_back(std::move(op));
    ops.push_back(std::move(weights));
  }
  step.ops = std::move(ops);
  return step;
}

Technique split_backward_row() {
  return {.name = "split backward", .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.layout.pp == 1 || !pipeline_order(step.run, step.layout).splits_backward()) return nullptr;
            return std::make_unique<SplitBackward>(step.model);
          }};
}

}  // namespace herd::strategies
