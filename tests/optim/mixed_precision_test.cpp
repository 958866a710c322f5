#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "herd/optim/adamw.h"
#include "herd/optim/clip.h"
#include "herd/optim/loss_scale.h"
#include "herd/optim/mixed_step.h"

namespace herd::optim {
namespace {

TEST(MixedStep, IsTheOptimizersStepOnTheMasterCopy_AndItsRounding) {
  const AdamW adamw({});
  for (const int64_t count : {1, 1000, 16384, 16385, 50000}) {
    const std::vector<kernels::ElementRange> decay = {{10, 7 + count / 2 + 10}};
    const at::Tensor master = at::randn({count}), gradient = at::randn({count}).to(at::kBFloat16);
    const at::Tensor weights = at::zeros({count}, at::kBFloat16);
    const Shard mixed{master.clone(), {}, {at::zeros({count}), at::zeros({count})}, 10, decay};
    const Shard exact{master.clone(), gradient.to(at::kFloat), {at::zeros({count}), at::zeros({count})}, 10, decay};
    const float factor = 0.5f;
    for (int64_t step = 0; step < 3; ++step) {
      const StepOptions options{.step = step, .rate = 1e-2, .factor = &factor};
      mixed_step(adamw, {weights, gradient, mixed}, options);
      adamw.step(exact, options);
    }
    EXPECT_TRUE(mixed.weights.equal(exact.weights)) << count;
    EXPECT_TRUE(mixed.states[1].equal(exact.states[1])) << count;
    EXPECT_TRUE(weights.equal(exact.weights.to(at::kBFloat16))) << count;
  }
}

TEST(MixedStep, RoundsAMomentumOfSixteenBitsOnceAStep_TheSameInAnyCut) {
  const AdamW adamw({});
  const int64_t count = 50000;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {  // of weights and gradient
    const at::Tensor start = at::randn({count}), gradient = at::randn({count}).to(type);
    const auto shard_of = [&](int64_t begin, int64_t end) {
      const at::Tensor weights = type == at::kFloat ? at::Tensor() : at::zeros({end - begin}, type);
      return MixedShard{weights, gradient.slice(0, begin, end),
                        Shard{start.slice(0, begin, end).clone(),
                              {},
                              {at::zeros({end - begin}, at::kBFloat16), at::zeros({end - begin})},
                              begin,
                              {}}};
    };
    const MixedShard whole = shard_of(0, count), left = shard_of(0, 16401), right = shard_of(16401, count);
    Shard exact{start.clone(), gradient.to(at::kFloat), {at::zeros({count}), at::zeros({count})}};
    for (int64_t step = 0; step < 3; ++step) {
      const StepOptions options{.step = step, .rate = 1e-2};
      for (const MixedShard* shard : {&whole, &left, &right}) mixed_step(adamw, *shard, options);
      adamw.step(exact, options);
      exact.states[0].copy_(exact.states[0].to(at::kBFloat16));
    }
    EXPECT_TRUE(whole.full.weights.equal(exact.weights));
    EXPECT_TRUE(whole.full.states[0].to(at::kFloat).equal(exact.states[0]));
    EXPECT_TRUE(whole.full.states[1].equal(exact.states[1]));
    EXPECT_TRUE(at::cat({left.full.weights, right.full.weights}).equal(whole.full.weights));
    EXPECT_TRUE(at::cat({left.full.states[0], right.full.states[0]}).equal(whole.full.states[0]));
    if (type != at::kFloat) {
      EXPECT_TRUE(whole.weights.equal(exact.weights.to(type)));
    }
  }
}

TEST(GradientSquares, OfSixteenBitsAreThoseOfTheSameNumbersInFp32) {
  const at::Tensor gradient = at::randn({40000}).to(at::kBFloat16);
  const double exact = gradient.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(gradient_squares(gradient), exact, 1e-10 * exact);
  gradient[39999] = INFINITY;
  EXPECT_FALSE(std::isfinite(gradient_squares(gradient)));
}

TEST(LossScale, HalvesAtAnOverflow_AndDoublesAfterManyStepsWithoutOne) {
  LossScale scale(1024);
  scale.count(true);
  EXPECT_EQ(scale.scale(), 512);
  for (int64_t i = 0; i < LossScale::kGrowAfter - 1; ++i) scale.count(false);
  EXPECT_EQ(scale.scale(), 512);
  scale.count(false);
  EXPECT_EQ(scale.scale(), 1024);
  for (int i = 0; i < 20; ++i) scale.count(true);
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.can_shrink());
  EXPECT_EQ(scale.skipped(), 21);
}

}  // namespace
}  // namespace herd::optim
