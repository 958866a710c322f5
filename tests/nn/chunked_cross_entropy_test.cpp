#include "herd/nn/chunked_cross_entropy.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/nn/deferred_gradients.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t N = 13, V = 50, D = 8;

struct ChunkedCrossEntropy : testing::TestWithParam<int64_t> {};

TEST_P(ChunkedCrossEntropy, MatchesTorchForAnySizeOfChunk) {
  OwnedGroup g({{"w", {V, D}, true, Init::kNormal, 0.5}});
  Parameter& w = g.group->find("w");
  at::Tensor n = wave({N, D}, 0.9).requires_grad_();
  at::Tensor targets = at::arange(N, at::kLong) * 3;
  targets[4] = -1;  // not counted
  const at::Tensor expected =
      at::nll_loss(at::log_softmax(n.mm(w.value().t()).to(at::kDouble), 1), targets, {}, at::Reduction::Sum, -1);
  const auto gradients = torch::autograd::grad({expected * 0.125}, {n, w.value()});
  const auto got = chunked_cross_entropy(n.detach(), w, targets, {.loss_weight = 0.125, .chunk_bytes = GetParam()});
  EXPECT_NEAR(got.sum, expected.item<double>(), 1e-5);
  EXPECT_EQ(got.count, N - 1);
  EXPECT_TRUE(at::allclose(got.dn_ND, gradients[0], 1e-5, 1e-7));
  EXPECT_TRUE(at::allclose(w.gradient(), gradients[1], 1e-5, 1e-7));
  EXPECT_EQ(got.dn_ND[4].abs().sum().item<float>(), 0);

  const at::Tensor before = g.gradient.clone();
  const auto alone =
      chunked_cross_entropy(n.detach(), w, targets, {.with_gradients = false, .chunk_bytes = GetParam()});
  EXPECT_EQ(alone.sum, got.sum);
  EXPECT_FALSE(alone.dn_ND.defined());
  EXPECT_TRUE(at::equal(g.gradient, before));
}

INSTANTIATE_TEST_SUITE_P(Bytes, ChunkedCrossEntropy, testing::Values(1, 3 * V * 4, 7 * V * 4, 1 << 20));

// The gradient of the weights is made later, out of all logits' gradients, and is that of one product over all rows.
TEST_P(ChunkedCrossEntropy, LeavesTheGradientOfItsWeightsToLater) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    OwnedGroup at_once({{"w", {V, D}, true, Init::kNormal, 0.5}}, 11, {type});
    OwnedGroup split({{"w", {V, D}, true, Init::kNormal, 0.5}}, 11, {type});
    const at::Tensor n = wave({N, D}, 0.9).to(type), targets = at::arange(N, at::kLong) * 3;
    CrossEntropyOptions options{.loss_weight = 0.125, .chunk_bytes = GetParam()};
    const auto expected = chunked_cross_entropy(n, at_once.group->find("w"), targets, options);
    DeferredGradients later;
    options.deferred = &later;
    split.gradient.zero_();
    const auto got = chunked_cross_entropy(n, split.group->find("w"), targets, options);
    EXPECT_EQ(got.sum, expected.sum);
    EXPECT_TRUE(at::equal(got.dn_ND, expected.dn_ND));
    EXPECT_EQ(split.gradient.abs().max().item<float>(), 0) << "it was made at once";
    later.run();
    const double rounding = type == at::kFloat ? 1e-6 : type == at::kHalf ? 2e-3 : 2e-2;
    EXPECT_TRUE(at::allclose(split.gradient, at_once.gradient, rounding, rounding * 0.1)) << type;
    EXPECT_GT(split.gradient.abs().max().item<float>(), 0.01);
  }
}

// Of rounded weights, with sums in fp32; and without an fp32 copy of all of them.
TEST(ChunkedCrossEntropyInFp16, IsThatOfFp32_InPiecesOfTheVocabulary) {
  constexpr int64_t kVocabulary = 9000, kWidth = 64, kRows = 6;
  DeviceMemory::install();
  OwnedGroup half({{"w", {kVocabulary, kWidth}, true, Init::kNormal, 0.5}}, 11, {at::kHalf});
  OwnedGroup whole({{"w", {kVocabulary, kWidth}, true, Init::kNormal, 0.5}});
  whole.weights.copy_(half.weights);
  const at::Tensor n = wave({kRows, kWidth}, 0.9).to(at::kHalf), targets = at::arange(kRows, at::kLong) * 1700;
  const CrossEntropyOptions options{.loss_weight = 4, .chunk_bytes = 2 * kVocabulary * 4};
  DeviceMemory::reset_peak();
  const int64_t before = DeviceMemory::live_bytes();
  const auto got = chunked_cross_entropy(n, half.group->find("w"), targets, options);
  EXPECT_LT(DeviceMemory::peak_bytes() - before, kVocabulary * kWidth * 4) << "less than one copy of the weights";
  const auto expected = chunked_cross_entropy(n.to(at::kFloat), whole.group->find("w"), targets, options);
  EXPECT_NEAR(got.sum, expected.sum, 1e-4 * expected.sum);
  EXPECT_TRUE(at::allclose(got.dn_ND.to(at::kFloat), expected.dn_ND, 2e-3, 1e-3));
  EXPECT_TRUE(at::allclose(half.gradient.to(at::kFloat), whole.gradient, 3e-3, 1e-4));
  EXPECT_GT(whole.gradient.abs().max().item<float>(), 1);
}

TEST(ChunkedCrossEntropyErrors, NamesTheVocabulary_WhenATargetIsOutside) {
  OwnedGroup g({{"w", {V, D}, true, Init::kNormal, 0.5}});
  try {
    chunked_cross_entropy(wave({1, D}, 0.9), g.group->find("w"), at::full({1}, V, at::kLong), {});
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(error.message().find("a target token is 50, but the vocabulary is [0, 50)"), std::string::npos);
  }
}

}  // namespace
}  // namespace herd::nn
