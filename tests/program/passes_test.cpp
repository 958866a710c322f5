#include "herd/program/passes.h"

#include <gtest/gtest.h>

#include "herd/program/program_names.h"

namespace herd::program {
namespace {

double flops(const spec::PassCost& cost) { return cost.matmul_flops + cost.attention_flops; }

spec::BlockShape layer() {
  spec::BlockShape block;
  block.output_bytes = 8;
  block.forward = {.matmul_flops = 100, .attention_flops = 10};
  block.backward = {.matmul_flops = 200, .attention_flops = 25};
  return block;
}

spec::BlockShape loss_block() {
  spec::BlockShape block;
  block.forward = {.matmul_flops = 300};
  return block;
}

TEST(Passes, HalvesOfABackwardAreTheWhole_AndWeightsTakeHalfOfItsMatrices) {
  const Op whole{.kind = OpKind::kBackward}, first{.kind = OpKind::kBackward, .writes = {pending(1, 0)}},
      second{.kind = OpKind::kBackwardWeight};
  EXPECT_DOUBLE_EQ(flops(cost_of(whole, layer())), 225);
  EXPECT_DOUBLE_EQ(flops(cost_of(second, layer())), 100);
  EXPECT_DOUBLE_EQ(flops(cost_of(first, layer())), 125);
}

TEST(Passes, HalvesOfALossAreTheWhole_AndWeightsTakeAThirdOfItsMatrices) {
  const Op whole{.kind = OpKind::kLoss}, first{.kind = OpKind::kLoss, .writes = {pending(1, 0)}},
      second{.kind = OpKind::kBackwardWeight};
  EXPECT_DOUBLE_EQ(flops(cost_of(whole, loss_block())), 300);
  EXPECT_DOUBLE_EQ(flops(cost_of(second, loss_block())), 100);
  EXPECT_DOUBLE_EQ(flops(cost_of(first, loss_block())), 200);
}

TEST(Passes, TheGradientsOfWeightsRunNoCollective) {
  const spec::InnerCollective inner{.axis = "tp", .times_forward = 2, .times_backward = 3, .times_recompute = 1};
  EXPECT_EQ(runs_of_inner_collective(inner, {.kind = OpKind::kForward}), 2);
  EXPECT_EQ(runs_of_inner_collective(inner, {.kind = OpKind::kRecompute}), 1);
  EXPECT_EQ(runs_of_inner_collective(inner, {.kind = OpKind::kBackward}), 3);
  EXPECT_EQ(runs_of_inner_collective(inner, {.kind = OpKind::kLoss}), 5);
  EXPECT_EQ(runs_of_inner_collective(inner, {.kind = OpKind::kBackwardWeight}), 0);
}

}  // namespace
}  // namespace herd::program
