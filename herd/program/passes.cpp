#include "herd/program/passes.h"

#include <algorithm>

namespace herd::program {

bool is_pass(const Op& op) {
  return op.kind == OpKind::kForward || op.kind == OpKind::kLoss || op.kind == OpKind::kRecompute ||
         op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeight || op.kind == OpKind::kLogits;
}

int micro_batch_of(const Op& op) {
  return op.lane == Lane::kActivations && !op.reads.empty() ? op.reads[0].micro_batch : op.micro_batch;
}

double share_of_backward(const Op& op, const spec::BlockShape& block) {
  const spec::PassCost& whole = block.is_loss() ? block.forward : block.backward;
  const double total_flops = whole.matmul_flops + whole.attention_flops;
  const double weights_share = total_flops > 0 ? whole.matmul_flops / (block.is_loss() ? 3 : 2) / total_flops : 0;
  if (op.kind == OpKind::kBackwardWeight) return weights_share;
  const bool is_split = std::any_of(op.writes.begin(), op.writes.end(),
                                    [](const Value& value) { return value.kind == ValueKind::kPending; });
  return is_split ? 1 - weights_share : 1;
}

spec::PassCost cost_of(const Op& op, const spec::BlockShape& block) {
  if (!is_pass(op)) return {};
  if (op.kind == OpKind::kForward || op.kind == OpKind::kRecompute || op.kind == OpKind::kLogits) return block.forward;
  spec::PassCost cost = block.is_loss() ? block.forward : block.backward;
  const double share = share_of_backward(op, block);
  for (double* part : {&cost.matmul_flops, &cost.attention_flops, &cost.memory_bytes}) *part *= share;
  return cost;
}

int64_t copied_bytes(const Program& step, const Op& op) {
  int64_t bytes = 0;
  for (size_t i = 0; i < op.writes.size() && i < op.reads.size(); ++i)
    bytes += step.values.at(op.writes[i].tensor > op.reads[i].tensor ? op.writes[i] : op.reads[i]).bytes;
  return bytes;
}

int64_t direct_bytes(const Program& step, const Op& op, const spec::BlockShape& block) {
  int64_t bytes = 0;
  for (const Value& value : op.reads) {
    if (value.kind == ValueKind::kWeight && value.tier == Tier::kHost) bytes += step.values.at(value).bytes;
  }
  return block.bytes_read(bytes);
}

int runs_of_inner_collective(const spec::InnerCollective& collective, const Op& op) {
  switch (op.kind) {
    case OpKind::kForward:
      return collective.times_forward;
    case OpKind::kRecompute:
      return collective.times_recompute;
    case OpKind::kBackward:
      return collective.times_backward;
    case OpKind::kLoss:
      return collective.times_forward + collective.times_backward;
    default:
      return 0;
  }
}

}  // namespace herd::program
