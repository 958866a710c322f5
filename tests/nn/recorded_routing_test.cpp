#include "herd/nn/recorded_routing.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "tests/support/expect_error.h"

namespace herd::nn {
namespace {

at::Tensor rows_of(std::vector<int64_t> choices, int64_t k) { return at::tensor(choices, at::kLong).view({-1, k}); }

// Two ranks have parts of the same samples, dropped choices among them; padding is no part of any.
TEST(RecordedRouting, GivesEachTokenItsExpertsAgain_WhoeverHasIt) {
  const auto cut = [](int place) { return TokenCut{.tokens = 3, .place = place, .parts = 2}; };
  RecordedRouting first, second;
  const auto own = token_rows(4, {7, 8}, cut(0)), other = token_rows(4, {7, 8}, cut(1));
  first.add(2, 1, own, rows_of({0, 1, 1, 2, 2, 0, ~0, 2}, 2));
  second.add(2, 1, other, rows_of({3, 0, 9, 9, 3, ~1, 9, 9}, 2));
  for (const auto& [at, choices] : second.samples()) first.add(at, choices);
  const auto whole = token_rows(8, {8, 7, -1}, {.tokens = 3});
  const at::Tensor choices = first.choices(2, 1, whole, 2, 4);
  EXPECT_TRUE(choices.equal(rows_of({2, 0, 0, 2, 3, 1, /**/ 0, 1, 1, 2, 3, 0, /**/ 0, 1, 0, 1}, 2))) << choices;
  EXPECT_EQ(first.samples().size(), 2U);
}

TEST(RecordedRouting, RefusesTokensThatItDoesNotKnow_AndExpertsThatNoRouterChooses) {
  RecordedRouting routing;
  const auto rows = token_rows(2, {5}, {.tokens = 2});
  routing.add(0, 3, rows, rows_of({0, 1, 2, 3}, 2));
  const auto expect_refused = [&](int64_t step, int64_t k, int64_t experts, const std::string& words) {
    EXPECT_ERROR(routing.choices(step, 3, rows, k, experts), Code::kBadConfig, words, "fix: ");
  };
  EXPECT_TRUE(routing.choices(0, 3, rows, 2, 4).equal(rows_of({0, 1, 2, 3}, 2)));
  expect_refused(1, 2, 4, "step 2, layer 3, sample 5: it is not there");
  expect_refused(0, 1, 4, "its tokens have 2 experts");
  expect_refused(0, 2, 3, "token 1 has experts 2, 3, of 3");
  EXPECT_ERROR(routing.choices(0, 3, token_rows(3, {5}, {.tokens = 3}), 2, 4), Code::kBadConfig, "token 2");
  EXPECT_ERROR(routing.add({0, 3, 5}, {.top_k = 3}), Code::kBadConfig, "top_k is 2 and 3");
  routing.add({4, 3, 5}, {.top_k = 2, .experts = {1, 1, 2, 3}});
  EXPECT_ERROR(routing.choices(4, 3, rows, 2, 4), Code::kBadConfig, "token 0 has experts 1, 1");
}

}  // namespace
}  // namespace herd::nn
