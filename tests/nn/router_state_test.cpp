#include "herd/nn/router_state.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

namespace herd::nn {
namespace {

TEST(RouterState, CountsChoicesAndDroppedOnesSinceItWasAsked) {
  RouterState state("h.0.router.bias", 3, 0);
  EXPECT_FALSE(state.bias_E().defined());
  state.count(at::tensor({0, 2, ~2, 1, 1, 1}, at::kLong), {4, -1}, 3);
  state.count(at::tensor({2}, at::kLong), {0}, 1);
  EXPECT_EQ(state.take_load(), (std::vector<int64_t>{1, 0, 3, 1}));
  EXPECT_EQ(state.take_load(), (std::vector<int64_t>{0, 0, 0, 0}));
}

TEST(RouterState, MovesTheBiasAgainstTheLoad) {
  RouterState state("h.0.router.bias", 3, 0.5);
  state.balance({7, 2, 3});
  EXPECT_TRUE(at::equal(state.bias_E(), at::tensor({-0.5F, 0.5F, 0.5F})));
  state.balance({4, 4, 4});
  EXPECT_TRUE(at::equal(state.bias_E(), at::tensor({-0.5F, 0.5F, 0.5F})));
}

TEST(RouterState, ImbalanceIsOneWhereAllHaveEqualShares) {
  EXPECT_DOUBLE_EQ(imbalance({4, 4, 4}), 1);
  EXPECT_DOUBLE_EQ(imbalance({12, 0, 0}), 3);
  EXPECT_DOUBLE_EQ(imbalance({0, 0}), 1);
}

}  // namespace
}  // namespace herd::nn
