// Attention in a ring drops what one rank drops, bit for bit; what it computes without dropout is compared with the
// plain equation in attention_of_ranks_test.cpp.
#include "herd/nn/ring_attention.h"

#include <gtest/gtest.h>

#include "attention_of_ranks_internal.h"

namespace herd::nn {
namespace {

class RingOfRanks : public testing::TestWithParam<int> {};

TEST_P(RingOfRanks, DropsWhatOneRankDrops) {
  const int P = GetParam();
  const at::Tensor x = wave({kBatch, 13, 8 * kWidth}, 0.37), dy = wave({kBatch, 13, 4 * kWidth}, 0.71);
  for (const std::vector<int64_t>& documents : {std::vector<int64_t>(), packed(13)}) {
    for (const bool causal : {true, false}) {
      const AttentionShape shape{.heads = 4, .kv_heads = 2, .causal = causal, .dropout = 0.3, .first_head = 4};
      const at::Tensor leaf = x.clone().requires_grad_();
      const Context context{
          .training = true, .seed = 3, .step = 1, .samples = {5, 8}, .layer = 2, .document_begins = documents};
      const auto heads = [&](int64_t first, int64_t count) {
        return leaf.narrow(2, first * kWidth, count * kWidth).view({kBatch, 13, count, kWidth}).transpose(1, 2);
      };
      const at::Tensor y =
          attend(heads(0, 4), heads(4, 2), heads(6, 2), shape, context).transpose(1, 2).reshape(dy.sizes());
      const Attended ring = in_a_ring(x, dy, shape, P, documents);
      EXPECT_LT(apart(ring.y, y.detach()), 1e-5) << "causal " << causal;
      EXPECT_LT(apart(ring.dx, torch::autograd::grad({y}, {leaf}, {dy})[0]), 1e-5) << "causal " << causal;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingOfRanks, testing::Values(1, 2, 3, 4, 5, 6, 7));

}  // namespace
}  // namespace herd::nn
