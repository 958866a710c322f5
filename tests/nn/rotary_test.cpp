#include "herd/nn/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "herd/bridge/budget_allocator.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t kHeads = 3, kHeadWidth = 6, kRest = 5;

// The header's equation, element by element, in fp64.
at::Tensor turned(const at::Tensor& x, const at::Tensor& f, int64_t first, double sign = 1) {
  at::Tensor out = x.to(at::kDouble).clone();
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t t = 0; t < x.size(1); ++t)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < kHeadWidth / 2; ++i) {
          const double angle = sign * static_cast<double>(first + t) * f[i].item<double>();
          const int64_t at = h * kHeadWidth + i, pair = at + kHeadWidth / 2;
          const double p = x[b][t][at].item<double>(), q = x[b][t][pair].item<double>();
          out[b][t][at] = p * std::cos(angle) - q * std::sin(angle);
          out[b][t][pair] = q * std::cos(angle) + p * std::sin(angle);
        }
  return out;
}

TEST(Rotary, TurnsPairsByTheirPosition_AndGradientsBack) {
  const at::Tensor f = rotary_frequencies({.theta = 100}, kHeadWidth);
  for (const int64_t first : {0, 9}) {
    const at::Tensor leaf = wave({2, 70, kHeads * kHeadWidth + kRest}, 0.37).requires_grad_();
    const at::Tensor y = rotate_heads(leaf * 1, f, kHeads, {{first, leaf.size(1)}}), dy = wave(leaf.sizes(), 0.71);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), turned(leaf.detach(), f, first), 1e-5, 1e-5));
    const at::Tensor expected = turned(dy, f, first, -1);
    const at::Tensor dx = torch::autograd::grad({y}, {leaf}, {dy.clone()})[0];
    EXPECT_TRUE(at::allclose(dx.to(at::kDouble), expected, 1e-5, 1e-5));
  }
}

TEST(Rotary, MakesProductsThatDependOnTheDistanceAlone) {
  const at::Tensor f = rotary_frequencies({}, kHeadWidth), q = wave({1, 1, kHeadWidth}, 0.9),
                   k = wave({1, 1, kHeadWidth}, 0.5);
  const auto product = [&](int64_t m, int64_t n) {
    return (rotate_heads(q.clone(), f, 1, {{m, 1}}) * rotate_heads(k.clone(), f, 1, {{n, 1}})).sum().item<double>();
  };
  EXPECT_NEAR(product(7, 3), product(104, 100), 1e-4);
  EXPECT_GT(std::abs(product(7, 3) - product(7, 2)), 1e-2);
}

TEST(Rotary, KeepsNothing) {
  DeviceMemory::install();
  const at::Tensor f = rotary_frequencies({}, kHeadWidth);
  const at::Tensor x = wave({2, 70, kHeads * kHeadWidth}, 0.37).requires_grad_() * 1;
  const int64_t before = DeviceMemory::live_bytes();
  const at::Tensor y = rotate_heads(x, f, kHeads, {{0, x.size(1)}});
  EXPECT_EQ(DeviceMemory::live_bytes(), before);
  EXPECT_EQ(y.const_data_ptr(), x.const_data_ptr());
}

TEST(Rotary, HasTheFrequenciesOfItsHeader) {
  constexpr int64_t kWidth = 64;
  const at::Tensor plain = rotary_frequencies({.theta = 500000}, kWidth);
  const at::Tensor linear =
      rotary_frequencies({.theta = 500000, .scaling = RotaryScaling::kLinear, .factor = 4}, kWidth);
  const at::Tensor llama3 = rotary_frequencies({.theta = 500000,
                                                .scaling = RotaryScaling::kLlama3,
                                                .factor = 8,
                                                .low_freq_factor = 1,
                                                .high_freq_factor = 4,
                                                .original_context = 8192},
                                               kWidth);
  int slow = 0, fast = 0, blended = 0;
  for (int64_t i = 0; i < kWidth / 2; ++i) {
    const double f = std::pow(500000, -static_cast<double>(2 * i) / kWidth);
    EXPECT_NEAR(plain[i].item<double>(), f, 1e-7 * f);
    EXPECT_NEAR(linear[i].item<double>(), f / 4, 1e-7 * f);
    const double rounds = 8192 * f / (2 * std::numbers::pi), s = (rounds - 1) / 3;
    const double expected = rounds > 4 ? f : rounds < 1 ? f / 8 : (1 - s) * f / 8 + s * f;
    (rounds > 4 ? fast : rounds < 1 ? slow : blended)++;
    EXPECT_NEAR(llama3[i].item<double>(), expected, 1e-7 * f) << i;
  }
  EXPECT_GT(slow, 0);
  EXPECT_GT(fast, 0);
  EXPECT_GT(blended, 0);
}

}  // namespace
}  // namespace herd::nn
