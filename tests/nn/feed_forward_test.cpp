#include "herd/nn/feed_forward.h"

#include <gtest/gtest.h>

#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

TEST(FeedForward, FollowsTheEquationsOfItsHeader) {
  OwnedGroup g({{"gate", {7, 5}, true, Init::kNormal, 1.0},
                {"up", {7, 5}, true, Init::kNormal, 1.0},
                {"up_bias", {7}, false, Init::kNormal, 1.0},
                {"down", {5, 7}, true, Init::kNormal, 1.0}});
  const auto value = [&](const char* name) { return g.group->find(name).value().to(at::kDouble); };
  const at::Tensor x = wave({3, 5}, 0.9), wide = x.to(at::kDouble);
  const at::Tensor up = at::matmul(wide, value("up").t()) + value("up_bias"),
                   gate = at::matmul(wide, value("gate").t());
  const at::Tensor plain = at::matmul(at::gelu(up, "tanh"), value("down").t());
  const at::Tensor gated = at::matmul(gate * at::sigmoid(gate) * up, value("down").t());
  FeedForwardParameters parameters{nullptr, g.group->find("up"), &g.group->find("up_bias"), g.group->find("down"),
                                   nullptr};
  EXPECT_TRUE(at::allclose(feed_forward(x, parameters).to(at::kDouble), plain, 1e-5, 1e-5));
  parameters.gate = &g.group->find("gate");
  EXPECT_TRUE(at::allclose(feed_forward(x, parameters).to(at::kDouble), gated, 1e-5, 1e-5));
}

}  // namespace
}  // namespace herd::nn
