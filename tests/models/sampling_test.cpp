#include "herd/models/sampling.h"

#include <ATen/ops/log.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <set>

namespace herd::models {
namespace {

TEST(PickToken, FollowsTheDistribution_AndItsCuts) {
  const at::Tensor logits = at::log(at::tensor({0.1, 0.6, 0.3}, at::kFloat));
  GenerateOptions options{.temperature = 1, .top_k = 0};
  EXPECT_EQ(pick_token(logits, options, 0.0), 1);
  EXPECT_EQ(pick_token(logits, options, 0.59), 1);
  EXPECT_EQ(pick_token(logits, options, 0.61), 2);
  EXPECT_EQ(pick_token(logits, options, 0.95), 0);
  options.top_k = 2;
  EXPECT_EQ(pick_token(logits, options, 0.999), 2);
  options.temperature = 0;
  EXPECT_EQ(pick_token(logits, options, 0.999), 1);
}

TEST(PickToken, DrawsFromTheTokensThatHaveAText) {
  const at::Tensor logits = at::log(at::tensor({0.1, 0.3, 0.6}, at::kFloat));
  GenerateOptions options{.temperature = 0, .vocabulary = 2};
  EXPECT_EQ(pick_token(logits, options, 0.5), 1);
  options.temperature = 1;
  EXPECT_EQ(pick_token(logits, options, 0.74), 1);
  EXPECT_EQ(pick_token(logits, options, 0.76), 0);
  EXPECT_EQ(pick_token(logits, options, 0.999), 0);
  options.vocabulary = 4;
  EXPECT_EQ(pick_token(logits, options, 0.5), 2);
}

TEST(DrawnForToken, IsKeyedBySeedAndNumber_AndLiesInTheUnitInterval) {
  std::set<double> all;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (uint64_t number = 0; number < 100; ++number) {
      const double u = uniform_for_token(seed, number);
      EXPECT_EQ(u, uniform_for_token(seed, number));
      EXPECT_GE(u, 0);
      EXPECT_LT(u, 1);
      all.insert(u);
    }
  }
  EXPECT_GT(all.size(), 295u);
}

}  // namespace
}  // namespace herd::models
