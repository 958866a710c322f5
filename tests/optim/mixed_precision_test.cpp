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
