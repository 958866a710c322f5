#include "herd/optim/optimizer.h"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "herd/base/error.h"
#include "herd/optim/adamw.h"
#include "herd/optim/clip.h"
#include "herd/optim/sgd.h"
#include "tests/support/expect_error.h"

namespace herd::optim {
namespace {

constexpr int64_t kFirst = 301, kSecond = 66;  // two parameters: weight decay in the first only

struct Flat {
  at::Tensor weights, gradient;
  std::vector<at::Tensor> states;
  std::vector<kernels::ElementRange> decay;
};

Flat make_flat(const Optimizer& optimizer) {
  Flat flat{torch::randn(kFirst + kSecond), torch::zeros(kFirst + kSecond), {}, {}};
  for (int k = 0; k < optimizer.num_states(); ++k) flat.states.push_back(torch::zeros(kFirst + kSecond));
  append_range(flat.decay, 0, kFirst);
  return flat;
}

// Gradients that differ from step to step, some above the clipping norm and some below.
at::Tensor gradient_of_step(int step) { return torch::randn(kFirst + kSecond) * (step % 3 == 0 ? 1.0 : 0.01); }

// 20 steps of herd's optimizer and of torch's on the same gradients, clipped to norm 1; the largest difference of any
// weight, relative to the largest weight.
template <typename MakeTorch>
double difference_after_20_steps(const Optimizer& optimizer, MakeTorch make_torch) {
  torch::manual_seed(5);
  Flat flat = make_flat(optimizer);
  std::vector<at::Tensor> parameters = {flat.weights.slice(0, 0, kFirst).clone().requires_grad_(true),
                                        flat.weights.slice(0, kFirst).clone().requires_grad_(true)};
  auto reference = make_torch(parameters);
  for (int step = 0; step < 20; ++step) {
    const at::Tensor gradient = gradient_of_step(step);
    const double rate = 0.01 * (step + 1);
    parameters[0].mutable_grad() = gradient.slice(0, 0, kFirst).clone();
    parameters[1].mutable_grad() = gradient.slice(0, kFirst).clone();
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    for (auto& group : reference->param_groups()) group.options().set_lr(rate);
    reference->step();

    flat.gradient.copy_(gradient);
    const Clip clip = clip_by_norm(sum_of_squares(flat.gradient), 1.0);
    EXPECT_NEAR(clip.norm, norm, 1e-6 * norm);
    optimizer.step({flat.weights, flat.gradient, flat.states, 0, flat.decay},
                   {.step = step, .rate = rate, .factor = &clip.factor});
  }
  const at::Tensor wanted = torch::cat({parameters[0], parameters[1]}).detach();
  return ((flat.weights - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST(AdamW, EqualsTorchWithClippingAndADecayedGroup) {
  const AdamW optimizer({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  const double difference = difference_after_20_steps(optimizer, [](std::vector<at::Tensor>& parameters) {
    const auto options = [](double decay) {
      return std::make_unique<torch::optim::AdamWOptions>(
          torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}).eps(1e-8).weight_decay(decay));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{parameters[0]}, options(0.1));
    groups.emplace_back(std::vector<at::Tensor>{parameters[1]}, options(0.0));
    return std::make_unique<torch::optim::AdamW>(groups);
  });
  EXPECT_LT(difference, 1e-6);
}

TEST(Sgd, EqualsTorchWithNesterovMomentum) {
  const Sgd optimizer({.momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  const double difference = difference_after_20_steps(optimizer, [](std::vector<at::Tensor>& parameters) {
    const auto options = [](double decay) {
      return std::make_unique<torch::optim::SGDOptions>(
          torch::optim::SGDOptions(1e-3).momentum(0.9).nesterov(true).weight_decay(decay));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{parameters[0]}, options(0.01));
    groups.emplace_back(std::vector<at::Tensor>{parameters[1]}, options(0.0));
    return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(1e-3));
  });
  EXPECT_LT(difference, 1e-6);
}

TEST(Optimizer, StepsShardsToTheBitsOfTheWhole) {
  torch::manual_seed(6);
  const AdamW optimizer({});
  Flat whole = make_flat(optimizer);
  whole.gradient.copy_(gradient_of_step(0));
  const at::Tensor initial = whole.weights.clone();
  optimizer.step({whole.weights, whole.gradient, whole.states, 0, whole.decay}, {.rate = 0.1});
  for (int64_t cut : {1, 100, 301, 350}) {
    at::Tensor joined;
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, cut}, {cut, kFirst + kSecond}}) {
      const at::Tensor part = initial.slice(0, begin, end).clone();
      optimizer.step({part,
                      whole.gradient.slice(0, begin, end),
                      {torch::zeros_like(part), torch::zeros_like(part)},
                      begin,
                      whole.decay},
                     {.rate = 0.1});
      joined = joined.defined() ? torch::cat({joined, part}) : part;
    }
    EXPECT_TRUE(joined.equal(whole.weights)) << "cut at " << cut;
  }
}

TEST(Optimizer, SaysWhatStateItNeeds) {
  EXPECT_EQ(AdamW({}).num_states(), 2);
  EXPECT_EQ(Sgd({.momentum = 0.9}).num_states(), 1);
  EXPECT_EQ(Sgd({.momentum = 0}).num_states(), 0);
}

TEST(Optimizer, RefusesBetasThatNeverForget) {
  try {
    AdamW({.beta2 = 1.0});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(error.message().find("0 <= beta2 < 1"), std::string::npos);
  }
}

// With error feedback, an element's gradients of 20 steps that come at once move it as far as 20 that come one by one,
// once no momentum is left; without the freeze they move it less than half as far.
TEST(AdamW, MovesAWeightByTheSumOfItsGradients_AfterItsFreezeStep) {
  const auto moved = [](int64_t freeze_step, bool at_once) {
    const AdamW optimizer({.weight_decay = 0, .freeze_step = freeze_step});
    const at::Tensor weight = torch::zeros(1), gradient = torch::ones(1);
    std::vector<at::Tensor> states = {torch::zeros(1), torch::zeros(1)};
    for (int64_t step = 0; step < 300; ++step) {
      if (step == 100) weight.zero_();
      gradient.fill_(step < 100 ? 1.0 : step >= 120 ? 0.0 : !at_once ? 1.0 : step == 119 ? 20.0 : 0.0);
      optimizer.step({weight, gradient, states, 0, {}}, {.step = step, .rate = 1e-3});
    }
    return -weight.item<double>();
  };
  EXPECT_NEAR(moved(80, true), moved(80, false), 1e-4 * moved(80, false));
  EXPECT_LT(moved(0, true), 0.5 * moved(0, false));
}

TEST(Optimizer, RefusesAFreezeStepThatIsNegative) {
  EXPECT_ERROR(AdamW({.freeze_step = -1}), Code::kBadConfig, "freeze_step = -1 of adamw: needs 0");
}

TEST(Optimizer, RefusesStatesOfAnotherSize) {
  const Sgd optimizer({.momentum = 0.9});
  const at::Tensor x = torch::zeros(4);
  EXPECT_THROW(optimizer.step({x, torch::zeros(4), {torch::zeros(3)}}, {.rate = 0.1}), Error);
}

TEST(Clip, LeavesSmallGradientsAloneAndShowsNan) {
  EXPECT_EQ(clip_by_norm(0.25, 1.0).factor, 1.0f);
  EXPECT_EQ(clip_by_norm(0.25, 1.0).norm, 0.5);
  EXPECT_NEAR(clip_by_norm(16.0, 1.0).factor, 0.25, 1e-6);
  EXPECT_EQ(clip_by_norm(16.0, 0.0).factor, 1.0f);
  EXPECT_TRUE(std::isnan(clip_by_norm(std::nan(""), 1.0).norm));
}

TEST(AppendRange, JoinsRangesThatTouch) {
  std::vector<kernels::ElementRange> ranges;
  append_range(ranges, 0, 3);
  append_range(ranges, 3, 5);
  append_range(ranges, 5, 5);
  append_range(ranges, 7, 9);
  EXPECT_EQ(ranges, (std::vector<kernels::ElementRange>{{0, 5}, {7, 9}}));
}

}  // namespace
}  // namespace herd::optim
