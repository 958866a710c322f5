#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/split_float.h"
#include "herd/optim/adamw.h"
#include "herd/optim/clip.h"
#include "herd/optim/loss_scale.h"
#include "herd/optim/mixed_step.h"
#include "herd/optim/sgd.h"

namespace herd::optim {
namespace {

TEST(MixedStep, IsTheOptimizersStepOnTheMasterCopy_AndItsRounding) {
  const AdamW adamw({});
  for (const int64_t count : {1, 1000, 16384, 16385, 50000}) {
    const std::vector<kernels::ElementRange> decay = {{10, 7 + count / 2 + 10}};
    const at::Tensor master = at::randn({count}), gradient = at::randn({count}).to(at::kHalf);
    const at::Tensor weights = at::zeros({count}, at::kHalf);
    const Shard mixed{master.clone(), {}, {at::zeros({count}), at::zeros({count})}, 10, decay};
    const Shard exact{master.clone(), gradient.to(at::kFloat), {at::zeros({count}), at::zeros({count})}, 10, decay};
    const float factor = 0.5f;
    for (int64_t step = 0; step < 3; ++step) {
      const StepOptions options{.step = step, .rate = 1e-2, .factor = &factor};
      mixed_step(adamw, {weights, {}, gradient, mixed}, options);
      adamw.step(exact, options);
    }
    EXPECT_TRUE(mixed.weights.equal(exact.weights)) << count;
    EXPECT_TRUE(mixed.states[1].equal(exact.states[1])) << count;
    EXPECT_TRUE(weights.equal(exact.weights.to(at::kHalf))) << count;
  }
}

TEST(MixedStep, TakesNoMemoryOfTheDevice) {
  DeviceMemory::install();
  const int64_t count = 50000;
  const at::Tensor weights = at::zeros({count}, at::kHalf), gradient = at::zeros({count}, at::kHalf);
  const Shard master{at::zeros({count}), {}, {at::zeros({count}, at::kBFloat16), at::zeros({count})}};
  const int64_t before = DeviceMemory::live_bytes();
  DeviceMemory::reset_peak();
  mixed_step(AdamW({}), {weights, {}, gradient, master}, {.step = 0, .rate = 1e-2});
  EXPECT_EQ(DeviceMemory::peak_bytes(), before);
}

// Finite numbers of all sizes, subnormal ones and the largest among them, half of them negative.
at::Tensor any_numbers(int64_t count) {
  at::Tensor bits = at::randint(0x7f800000, {count}, at::kInt);
  bits = at::where(at::arange(count) % 7 == 0, bits.remainder(0x800000), bits);  // subnormal
  bits = at::where(at::arange(count) % 11 == 0, 0x7f7fffff, bits);
  return at::where(at::rand({count}) < 0.5, bits, bits + std::numeric_limits<int>::min()).to(at::kInt).view(at::kFloat);
}

TEST(MixedStep, OfBf16WeightsAndTheirLowerHalvesIsTheStepOfFp32Weights_BitByBit) {
  at::manual_seed(7);
  const AdamW adamw({});
  const Sgd sgd({.momentum = 0.9, .weight_decay = 0.1});
  const Sgd plain({.momentum = 0});
  for (const Optimizer* optimizer : std::initializer_list<const Optimizer*>{&adamw, &sgd, &plain}) {
    for (const int64_t count : {1, 1000, 16384, 50000}) {
      for (const bool small : {true, false}) {
        const std::vector<kernels::ElementRange> decay = {{3, count / 2 + 3}};
        const at::Tensor start = small ? 0.02 * at::randn({count}) : any_numbers(count);
        const at::Tensor weights = at::zeros({count}, at::kBFloat16), low = at::zeros({count}, at::kShort);
        split_float(start, weights, low);
        Shard exact{start.clone(), at::empty({count}), {}, 3, decay}, split{{}, {}, {}, 3, decay};
        for (int k = 0; k < optimizer->num_states(); ++k) {
          exact.states.push_back(at::zeros({count}));
          split.states.push_back(at::zeros({count}));
        }
        for (int64_t step = 0; step < 5; ++step) {
          const at::Tensor gradient = (small ? at::randn({count}) : any_numbers(count)).to(at::kBFloat16);
          const StepOptions options{.step = step, .rate = 1e-3};
          mixed_step(*optimizer, {weights, low, gradient, split}, options);
          exact.gradient.copy_(gradient);
          optimizer->step(exact, options);
        }
        const at::Tensor joined = at::empty({count});
        join_float(weights, low, joined);
        const at::Tensor number = exact.weights.isnan().logical_not();  // a gradient of 1e38 leaves few
        EXPECT_TRUE(
            joined.view(at::kInt).masked_select(number).equal(exact.weights.view(at::kInt).masked_select(number)))
            << optimizer->name() << " " << count;
        EXPECT_TRUE(joined.isnan().equal(exact.weights.isnan()));
        EXPECT_TRUE(weights.isnan().equal(exact.weights.isnan()));
        EXPECT_TRUE(!small || number.all().item<bool>());
        for (int k = 0; k < optimizer->num_states(); ++k)
          EXPECT_TRUE(split.states[static_cast<size_t>(k)].view(at::kInt).equal(
              exact.states[static_cast<size_t>(k)].view(at::kInt)));
        const at::Tensor rounded = exact.weights.view(at::kInt).bitwise_and(0xffff).ne(0x8000).logical_and(number);
        EXPECT_TRUE(weights.masked_select(rounded).equal(exact.weights.to(at::kBFloat16).masked_select(rounded)));
      }
    }
  }
}

TEST(MixedStep, RoundsAMomentumOfSixteenBitsOnceAStep_TheSameInAnyCut) {
  const AdamW adamw({});
  const int64_t count = 50000;
  for (const at::ScalarType type : {at::kFloat, at::kHalf}) {  // of weights and gradient
    const at::Tensor start = at::randn({count}), gradient = at::randn({count}).to(type);
    const auto shard_of = [&](int64_t begin, int64_t end) {
      const at::Tensor weights = type == at::kFloat ? at::Tensor() : at::zeros({end - begin}, type);
      return MixedShard{weights,
                        {},
                        gradient.slice(0, begin, end),
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
    EXPECT_TRUE(whole.master.weights.equal(exact.weights));
    EXPECT_TRUE(whole.master.states[0].to(at::kFloat).equal(exact.states[0]));
    EXPECT_TRUE(whole.master.states[1].equal(exact.states[1]));
    EXPECT_TRUE(at::cat({left.master.weights, right.master.weights}).equal(whole.master.weights));
    EXPECT_TRUE(at::cat({left.master.states[0], right.master.states[0]}).equal(whole.master.states[0]));
    if (type != at::kFloat) {
      EXPECT_TRUE(whole.weights.equal(exact.weights.to(type)));
    }
  }
}

TEST(GradientSquares, OfSixteenBitsAreThoseOfTheSameNumbersInFp32) {
  const at::Tensor gradient = at::randn({40000}).to(at::kBFloat16);
  const double exact = gradient.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(sum_of_squares(gradient), exact, 1e-10 * exact);
  gradient[39999] = INFINITY;
  EXPECT_FALSE(std::isfinite(sum_of_squares(gradient)));
}

TEST(LossScale, HalvesAtAnOverflow_AndDoublesAfterManyStepsWithoutOne) {
  LossScale scale(1024);
  scale.after_step(true);
  EXPECT_EQ(scale.scale(), 512);
  for (int64_t i = 0; i < LossScale::kGrowAfter - 1; ++i) scale.after_step(false);
  EXPECT_EQ(scale.scale(), 512);
  scale.after_step(false);
  EXPECT_EQ(scale.scale(), 1024);
  for (int i = 0; i < 20; ++i) scale.after_step(true);
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.can_shrink());
  EXPECT_EQ(scale.skipped(), 21);
}

}  // namespace
}  // namespace herd::optim
