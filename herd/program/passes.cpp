#include "herd/program/passes.h"

#include <algorithm>

namespace herd::program {

bool is_pass(const Op& op) {
  return op.kind == OpKind::kForward || op.kind == OpKind::kLoss || op.kind == OpKind::kRecompute ||
         op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeight;
}

double share_of_backward(const Op& op, const spec::BlockShape& block) {
  const double all = block.backward.matmul_flops + block.backward.attention_flops;
  const double weights = all > 0 ? block.backward.matmul_flops / 2 / all : 0;
  if (op.kind == OpKind::kBackwardWeight) return weights;
  const bool splits = std::any_of(op.writes.begin(), op.writes.end(),
                                  [](const Value& value) { return value.kind == ValueKind::kPending; });
  return splits ? 1 - weights : 1;
}

spec::Cost cost_of(const Op& op, const spec::BlockShape& block) {
  if (!is_pass(op)) return {};
  if (op.kind != OpKind::kBackward && op.kind != OpKind::kBackwardWeight) return block.forward;
  spec::Cost cost = block.backward;
  const double share = share_of_backward(op, block);
  for (double* part : {&cost.matmul_flops, &cost.attention_flops, &cost.memory_bytes}) *part *= share;
  return cost;
}

}  // namespace herd::program
