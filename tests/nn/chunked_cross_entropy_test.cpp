#include "herd/nn/chunked_cross_entropy.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
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
  const auto got = chunked_cross_entropy(n.detach(), w, targets, {.weight = 0.125, .chunk_bytes = GetParam()});
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
