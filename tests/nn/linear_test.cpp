#include "herd/nn/linear.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace herd::nn
