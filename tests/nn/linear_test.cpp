#include "herd/nn/linear.h"

#include <gtest/gtest.h>

#include "herd/nn/embedding.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

// The same as torch's own linear and its autograd, bit by bit, and twice it after a second backward.
TEST(Linear, MatchesTorchBitByBitAndAddsTheSecondTime) {
  OwnedGroup g({{"w", {5, 7}, true, Init::kNormal, 0.3}, {"b", {5}, false, Init::kNormal, 0.3}});
  Parameter &w = g.group->find("w"), &b = g.group->find("b");
  at::Tensor x = wave({2, 3, 7}, 0.7).requires_grad_();
  const at::Tensor dy = wave({2, 3, 5}, 1.3);
  const at::Tensor expected = at::linear(x, w.value(), b.value());
  const auto gradients = torch::autograd::grad({expected}, {x, w.value(), b.value()}, {dy});
  for (float times = 1; times <= 2; ++times) {
    const at::Tensor y = linear(x, w, &b);
    EXPECT_TRUE(at::equal(y, expected));
    const auto dx = torch::autograd::grad({y}, {x, w.value()}, {dy}, false, false, true);
    EXPECT_TRUE(at::equal(dx[0], gradients[0]));
    EXPECT_FALSE(dx[1].defined()) << "a fresh weight gradient was made";
    EXPECT_TRUE(at::allclose(w.gradient(), gradients[1] * times, 1e-6, 1e-7));
    EXPECT_TRUE(at::allclose(b.gradient(), gradients[2] * times, 1e-6, 1e-7));
  }
}

TEST(Linear, WritesGradientsWithoutABiasAndWithoutAnInputGradient) {
  OwnedGroup g({{"w", {5, 7}, true, Init::kNormal, 0.3}});
  Parameter& w = g.group->find("w");
  const at::Tensor x = wave({4, 7}, 0.7), dy = wave({4, 5}, 1.3);
  torch::autograd::grad({linear(x, w)}, {w.value()}, {dy}, false, false, true);
  EXPECT_TRUE(at::equal(w.gradient(), dy.t().mm(x)));
}

// 16-bit sums swallow what is less than 2^-9 of them (bf16; 2^-12 in fp16); an fp32 gradient doesn't. Nor do biases and
// embeddings.
TEST(Linear, KeepsSmallContributions_WhereGradientsAreFp32) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType gradient : {type, at::kFloat}) {
      OwnedGroup g({{"w", {3, 2}}, {"b", {3}}, {"e", {4, 2}}}, 11, {.dtype = type, .gradient_dtype = gradient});
      Parameter &w = g.group->find("w"), &b = g.group->find("b"), &e = g.group->find("e");
      for (const float size : {4096.0f, 1.0f, 1.0f, 1.0f}) {
        const at::Tensor x = at::ones({1, 2}, type), dy = at::full({1, 3}, size, type);
        torch::autograd::grad({linear(x, w, &b)}, {w.value()}, {dy}, false, false, true);
        torch::autograd::grad({embedding(at::ones({1}, at::kLong), e)}, {e.value()}, {at::full({1, 2}, size, type)},
                              false, false, true);
      }
      const float sum = gradient == at::kFloat ? 4099.0f : 4096.0f;
      for (const at::Tensor& one : {w.gradient(), b.gradient(), e.gradient()[1]}) {
        EXPECT_EQ(one.scalar_type(), gradient);
        EXPECT_TRUE(one.eq(sum).all().item<bool>()) << type << " " << gradient << "\n" << one;
      }
    }
  }
}

}  // namespace
}  // namespace herd::nn
