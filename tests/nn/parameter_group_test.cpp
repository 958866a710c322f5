#include "herd/nn/parameter_group.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/bridge/split_float.h"

namespace herd::nn {
namespace {

std::vector<ParameterSpec> specs() {
  return {{"a.weight", {3, 5}, true, Init::kNormal, 0.5}, {"a.bias", {3}}, {"b.gain", {7}, false, Init::kOnes}};
}

TEST(ParameterGroup, LaysParametersOneAfterTheOtherWithoutPadding) {
  ParameterGroup group("g", specs());
  EXPECT_EQ(group.elements(), 15 + 3 + 7);
  const at::Tensor flat = at::arange(25, at::kFloat);
  group.attach(flat);
  EXPECT_EQ(group.find("a.bias").offset(), 15);
  EXPECT_TRUE(at::equal(group.find("b.gain").value(), at::arange(18, 25, at::kFloat)));
  EXPECT_EQ(group.find("a.weight").value().sizes(), (at::IntArrayRef{3, 5}));
  EXPECT_THROW(group.find("c"), Error);
}

TEST(ParameterGroup, InitialWeightsDoNotDependOnHowTheyAreCut) {
  ParameterGroup group("g", specs());
  const at::Tensor whole = at::empty({25});
  group.initialize(7, whole);
  for (int64_t cut = 0; cut <= 25; ++cut) {
    const at::Tensor parts = at::full({25}, std::nanf(""));
    group.initialize(7, parts.narrow(0, 0, cut), 0);
    group.initialize(7, parts.narrow(0, cut, 25 - cut), cut);
    EXPECT_TRUE(at::equal(parts, whole)) << "cut at " << cut;
  }
  ParameterGroup alone("elsewhere", {specs()[0]});
  const at::Tensor part = at::empty({15});
  alone.initialize(7, part);
  EXPECT_TRUE(at::equal(part, whole.narrow(0, 0, 15)));
  EXPECT_EQ(whole.narrow(0, 15, 3).abs().sum().item<float>(), 0);
  EXPECT_EQ(whole.narrow(0, 18, 7).sum().item<float>(), 7);
  group.initialize(8, part);
  EXPECT_FALSE(at::equal(part, whole.narrow(0, 0, 15)));
}

TEST(ParameterGroup, InitialWeightsInBf16AndTheirLowerHalvesAreThoseInFp32) {
  const int64_t num = (1 << 20) + 25;  // some of which are half way between two of bf16
  ParameterGroup group("g", {{"w", {num}, true, Init::kNormal, 0.02}, {"gain", {3}, false, Init::kOnes}, {"b", {2}}});
  const at::Tensor exact = at::empty({num + 5}), joined = at::empty({num + 5});
  const at::Tensor high = at::empty({num + 5}, at::kBFloat16), low = at::empty({num + 5}, at::kShort);
  group.initialize(7, exact);
  group.initialize(7, high);
  group.initialize(7, low);
  join_float(high, low, joined);
  EXPECT_TRUE(joined.equal(exact));
  EXPECT_FALSE(high.equal(exact.to(at::kBFloat16)));
  for (const int64_t cut : {int64_t{1}, int64_t{50}, num - 1, num + 2}) {
    const at::Tensor rest = at::empty({num + 5 - cut}, at::kShort), half = at::empty({num + 5 - cut}, at::kBFloat16);
    group.initialize(7, rest, cut);
    group.initialize(7, half, cut);
    EXPECT_TRUE(rest.equal(low.narrow(0, cut, rest.numel())));
    EXPECT_TRUE(half.equal(high.narrow(0, cut, rest.numel())));
  }
}

TEST(ParameterGroup, NormalWeightsHaveTheStatedMoments) {
  ParameterGroup group("g", {{"w", {400, 500}, true, Init::kNormal, 0.02}});
  const at::Tensor w = at::empty({200000});
  group.initialize(3, w);
  const at::Tensor z = w.to(at::kDouble) / 0.02;
  EXPECT_NEAR(z.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(z.pow(2).mean().item<double>(), 1, 0.015);
  EXPECT_NEAR(z.pow(4).mean().item<double>(), 3, 0.1);
  const at::Tensor neighbours = z.narrow(0, 0, 199999) * z.narrow(0, 1, 199999);
  EXPECT_NEAR(neighbours.mean().item<double>(), 0, 0.01);
}

TEST(ParameterGroup, FirstContributionOverwritesLaterOnesAddAndTheRestIsZeroed) {
  ParameterGroup group("g", specs());
  const at::Tensor gradient = at::full({25}, std::nanf(""));
  group.attach_gradient(gradient);
  Parameter& bias = group.find("a.bias");
  for (int step = 0; step < 2; ++step) {
    group.begin_gradient();
    bias.add_gradient(at::full({3}, 2.0f));
    group.finish_gradient();
    bias.add_gradient(at::full({3}, 3.0f));
    group.finish_gradient();
    EXPECT_TRUE(at::equal(bias.gradient(), at::full({3}, 5.0f)));
    EXPECT_EQ(gradient.sum().item<float>(), 15.0f);
  }
}

}  // namespace
}  // namespace herd::nn
