#include "herd/nn/router_state.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

namespace herd::nn {
namespace {

TEST(RouterState, CountsChoicesAndDroppedOnesSinceItWasAsked) {
  RouterState state("h.0.router.bias", 3, 0);
  EXPECT_FALSE(state.bias_E().defined());
  const std::vector<uint8_t> close_N = {1, 0, 1, 1, 1, 1};
  state.count(at::tensor({0, 2, ~2, 1, 1, 1}, at::kLong), token_rows(6, {4, -1}, {.tokens = 3}), close_N);
  state.count(at::tensor({2}, at::kLong), token_rows(1, {0}, {.tokens = 1}));
  EXPECT_EQ(state.take_load(), (std::vector<int64_t>{1, 0, 3, 1, 2}));
  EXPECT_EQ(state.take_load(), (std::vector<int64_t>{0, 0, 0, 0, 0}));
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

// Of a sequence of 5 tokens two ranks have 3 each, of which the last is padding; in a zigzag they have 4 each.
TEST(RouterState, CountsTheTokensOfARank_AndNoPadding) {
  const auto load = [](const TokenCut& cut) {
    RouterState state("", 2, 0);
    state.count(at::ones({2 * cut.size(), 1}, at::kLong), token_rows(2 * cut.size(), {7, 8}, cut));
    return state.take_load();
  };
  EXPECT_EQ(load({.tokens = 5, .place = 0, .parts = 2}), (std::vector<int64_t>{0, 6, 0, 0}));
  EXPECT_EQ(load({.tokens = 5, .place = 1, .parts = 2}), (std::vector<int64_t>{0, 4, 0, 0}));
  EXPECT_EQ(load({.tokens = 5, .place = 0, .parts = 2, .zigzag = true}), (std::vector<int64_t>{0, 4, 0, 0}));
  EXPECT_EQ(load({.tokens = 5, .place = 1, .parts = 2, .zigzag = true}), (std::vector<int64_t>{0, 6, 0, 0}));
}

}  // namespace
}  // namespace herd::nn
