#include "herd/nn/dropout.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/nn/philox.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

// bool: what dropout keeps of ones.
at::Tensor kept(at::IntArrayRef sizes, double p, DropoutSite site, const Context& context) {
  return dropout(at::ones(sizes), p, site, context).ne(0);
}

Context training(std::vector<int64_t> samples) {
  return {.training = true, .seed = 5, .step = 9, .samples = std::move(samples), .layer = 3};
}

TEST(Dropout, DrawsTheSameForASampleWhateverTheBatch) {
  const at::Tensor x = wave({3, 7, 100}, 0.37);  // 700 elements: no whole number of pieces
  const at::Tensor whole = dropout(x, 0.3, DropoutSite::kFeedForward, training({40, 41, 42}));
  const at::Tensor alone = dropout(x.narrow(0, 1, 1), 0.3, DropoutSite::kFeedForward, training({41}));
  const at::Tensor turned = dropout(x.flip(0), 0.3, DropoutSite::kFeedForward, training({42, 41, 40}));
  EXPECT_TRUE(at::equal(whole[1], alone[0]));
  EXPECT_TRUE(at::equal(whole, turned.flip(0)));
}

TEST(Dropout, OfTokensThatRanksShare_IsThatOfTheWhole) {
  const at::Tensor x = wave({2, 13, 10}, 0.37);
  const at::Tensor whole = dropout(x, 0.3, DropoutSite::kFeedForward, training({40, 41}));
  for (const bool zigzag : {false, true}) {
    for (int place = 0; place < 3; ++place) {
      Context context = training({40, 41});
      context.cut = {.tokens = 13, .place = place, .parts = 3, .zigzag = zigzag};
      Tuple own, expected;
      for (const auto& [begin, count] : context.cut.spans()) {
        const int64_t there = std::clamp<int64_t>(13 - begin, 0, count);
        const at::Tensor padding = at::zeros({2, count - there, 10});
        own.push_back(at::cat({x.narrow(1, std::min<int64_t>(begin, 13), there), padding}, 1));
        expected.push_back(at::cat({whole.narrow(1, std::min<int64_t>(begin, 13), there), padding}, 1));
      }
      EXPECT_TRUE(
          at::equal(dropout_tokens(at::cat(own, 1), 0.3, DropoutSite::kFeedForward, context), at::cat(expected, 1)));
    }
  }
}

TEST(Dropout, OfPairsOfTokens_IsThatOfAllPairs) {
  const at::Tensor x = wave({2, 5, 9, 9}, 0.37);  // heads, queries, keys
  const at::Tensor whole = dropout(x, 0.3, DropoutSite::kAttention, training({40, 41}));
  Context context = training({40, 41});
  context.cut = {.tokens = 9, .parts = 2};
  const auto part = [](const at::Tensor& all) {  // heads 2 to 4, queries 1, 2 and 7, 8, keys 3 to 6
    const at::Tensor heads = all.narrow(1, 2, 3).narrow(3, 3, 4);
    return at::cat({heads.narrow(2, 1, 2), heads.narrow(2, 7, 2)}, 2);
  };
  EXPECT_TRUE(at::equal(dropout_pairs(part(x), 0.3, DropoutSite::kAttention, context, 2, {{1, 2}, {7, 2}}, {{3, 4}}),
                        part(whole)));
}

TEST(Dropout, DrawsAsTheHeaderSays) {
  const double p = 0.3;
  const at::Tensor keep = kept({1, 1030}, p, DropoutSite::kAttention, training({41}));
  const PhiloxKey key = philox_key(mix(mix(5, 9), 41));
  for (int64_t i = 0; i < 1030; ++i) {
    const uint32_t word =
        philox({static_cast<uint32_t>(i / 4), 0, 3, static_cast<uint32_t>(DropoutSite::kAttention)}, key)[i % 4];
    ASSERT_EQ(keep[0][i].item<bool>(), word >= p * 4294967296.0) << i;
  }
}

TEST(Dropout, KeyDependsOnSeedStepSampleLayerAndSite) {
  const Context base = training({41});
  const at::Tensor first = kept({1, 256}, 0.5, DropoutSite::kAttention, base);
  std::vector<Context> others(4, base);
  others[0].seed = 6;
  others[1].step = 10;
  others[2].samples = {42};
  others[3].layer = 4;
  for (const Context& other : others)
    EXPECT_FALSE(at::equal(kept({1, 256}, 0.5, DropoutSite::kAttention, other), first));
  EXPECT_FALSE(at::equal(kept({1, 256}, 0.5, DropoutSite::kEmbedding, base), first));
}

TEST(Dropout, BackwardUsesTheMaskOfForwardAndKeepsNone) {
  at::Tensor x = at::ones({2, 600}).requires_grad_();
  const at::Tensor y = dropout(x, 0.25, DropoutSite::kEmbedding, training({1, 2}));
  const at::Tensor dx = torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0];
  EXPECT_TRUE(at::equal(dx, y));
  EXPECT_NEAR(y.detach().eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.05);
  EXPECT_NEAR(y.detach().max().item<float>(), 1 / 0.75, 1e-6);
}

TEST(Dropout, IsTheIdentity_WhenNotTrainingOrPIsZero) {
  const at::Tensor x = wave({2, 8}, 0.1);
  EXPECT_TRUE(dropout(x, 0.0, DropoutSite::kEmbedding, training({})).is_same(x));
  EXPECT_TRUE(dropout(x, 0.5, DropoutSite::kEmbedding, {}).is_same(x));
  EXPECT_THROW(dropout(x, 1.0, DropoutSite::kEmbedding, training({1, 2})), Error);
}

}  // namespace
}  // namespace herd::nn
