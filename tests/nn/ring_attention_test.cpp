// Attention of tokens that ranks share, who pass keys and values around, is attention: outputs and gradients are those
// of the plain equation in fp64, whatever the number of ranks, tokens, key heads and the mask. With dropout they are
// those of one rank, bit for bit of what is dropped.
#include "herd/nn/ring_attention.h"

#include <gtest/gtest.h>

#include <mutex>

#include "herd/comm/inproc_world.h"
#include "herd/nn/documents.h"
#include "herd/nn/run_block.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t kBatch = 2, kWidth = 4;

struct Attended {
  at::Tensor y, dx;
};

// Plain attention of whole sequences, or of packed ones, in the type of x.
Attended plain(const at::Tensor& x, const at::Tensor& dy, const AttentionShape& shape,
               const std::vector<int64_t>& documents = {}) {
  const int64_t T = x.size(1), H = shape.heads, K = shape.kv_heads;
  const at::Tensor leaf = x.clone().requires_grad_();
  const auto heads = [&](int64_t first, int64_t count) {
    return leaf.narrow(2, first * kWidth, count * kWidth).view({kBatch, T, count, kWidth}).transpose(1, 2);
  };
  const at::Tensor q = heads(0, H), k = heads(H, K).repeat_interleave(H / K, 1),
                   v = heads(H + K, K).repeat_interleave(H / K, 1);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) / 2;
  if (shape.causal) scores = scores + at::full({T, T}, -INFINITY, scores.options()).triu_(1);
  if (!documents.empty()) {
    const at::Tensor begin_of =
        at::arange(T, at::kLong) - document_positions_tensor({.document_begins = documents}, kBatch, {.tokens = T});
    const at::Tensor is_earlier = at::arange(T, at::kLong).view({1, 1, 1, T}) < begin_of.view({kBatch, 1, T, 1});
    scores = scores.masked_fill(is_earlier, -INFINITY);
  }
  const at::Tensor y = at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({kBatch, T, H * kWidth});
  return {y.detach(), torch::autograd::grad({y}, {leaf}, {dy})[0]};
}

// What P ranks compute, put together again.
Attended in_a_ring(const at::Tensor& x, const at::Tensor& dy, const AttentionShape& shape, int P,
                   const std::vector<int64_t>& documents = {}) {
  const int64_t T = x.size(1);
  Attended out{at::zeros_like(dy), at::zeros_like(x)};
  std::mutex mutex;
  run_inproc(P, [&](Communicator& comm) {
    const Context context{.training = true,
                          .seed = 3,
                          .step = 1,
                          .samples = {5, 8},
                          .layer = 2,
                          .document_begins = documents,
                          .cut = {.tokens = T, .place = comm.rank(), .parts = P, .zigzag = true},
                          .tensor_ranks = &comm};
    const auto own = [&](const at::Tensor& whole) {
      const at::Tensor part = at::zeros({kBatch, context.cut.size(), whole.size(2)}, whole.options());
      int64_t at = 0;
      for (const auto& [begin, count] : context.cut.spans()) {
        const int64_t there = std::clamp<int64_t>(T - begin, 0, count);
        if (there > 0) part.narrow(1, at, there).copy_(whole.narrow(1, begin, there));
        at += count;
      }
      return part;
    };
    const auto put = [&](const at::Tensor& whole, const at::Tensor& part) {
      int64_t at = 0;
      for (const auto& [begin, count] : context.cut.spans()) {
        const int64_t there = std::clamp<int64_t>(T - begin, 0, count);
        if (there > 0) whole.narrow(1, begin, there).copy_(part.narrow(1, at, there));
        at += count;
      }
    };
    const at::Tensor leaf = own(x).requires_grad_();
    at::AutoGradMode with_grad(true);
    const at::Tensor y = ring_attention(leaf, shape, context);
    const at::Tensor dx = torch::autograd::grad({y}, {leaf}, {own(dy)})[0];
    const std::lock_guard lock(mutex);
    put(out.y, y.detach());
    put(out.dx, dx);
  });
  return out;
}

double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

class RingOfRanks : public testing::TestWithParam<int> {};

TEST_P(RingOfRanks, IsPlainAttention) {
  const int P = GetParam();
  for (const int64_t T : {2 * P - 1, 2 * P, 37}) {
    for (const auto& [heads, keys] : {std::pair<int64_t, int64_t>(3, 3), {4, 2}, {4, 1}}) {
      for (const bool causal : {true, false}) {
        if (T < 1) continue;
        const at::Tensor x = wave({kBatch, T, (heads + 2 * keys) * kWidth}, 0.37);
        const at::Tensor dy = wave({kBatch, T, heads * kWidth}, 0.71);
        const AttentionShape shape{.heads = heads, .kv_heads = keys, .causal = causal};
        const Attended expected = plain(x.to(at::kDouble), dy.to(at::kDouble), shape);
        const Attended ring = in_a_ring(x, dy, shape, P);
        EXPECT_LT(apart(ring.y, expected.y), 1e-5) << P << " ranks, " << T << " tokens, " << keys << " keys";
        EXPECT_LT(apart(ring.dx, expected.dx), 1e-5) << P << " ranks, " << T << " tokens, " << keys << " keys";
        const Attended exact = in_a_ring(x.to(at::kDouble), dy.to(at::kDouble), shape, P);
        EXPECT_LT(apart(exact.y, expected.y), 1e-12);
        EXPECT_LT(apart(exact.dx, expected.dx), 1e-12);
      }
    }
  }
}

// Where documents of two packed sequences of T tokens begin: of 1, 2, 3, .. tokens in the first; one in the second, and
// one more of the last token.
std::vector<int64_t> packed(int64_t T) {
  std::vector<int64_t> begins;
  for (int64_t begin = 0, length = 1; begin < T; begin += length++) begins.push_back(begin);
  begins.push_back(T);
  if (T > 1) begins.push_back(2 * T - 1);
  return begins;
}

TEST_P(RingOfRanks, IsPlainAttentionOfEachDocument) {
  const int P = GetParam();
  for (const int64_t T : {2 * P - 1, 2 * P, 37}) {
    for (const auto& [heads, keys] : {std::pair<int64_t, int64_t>(3, 3), {4, 2}}) {
      const at::Tensor x = wave({kBatch, T, (heads + 2 * keys) * kWidth}, 0.37);
      const at::Tensor dy = wave({kBatch, T, heads * kWidth}, 0.71);
      const AttentionShape shape{.heads = heads, .kv_heads = keys};
      const Attended expected = plain(x.to(at::kDouble), dy.to(at::kDouble), shape, packed(T));
      const Attended ring = in_a_ring(x, dy, shape, P, packed(T));
      EXPECT_LT(apart(ring.y, expected.y), 1e-5) << P << " ranks, " << T << " tokens, " << keys << " keys";
      EXPECT_LT(apart(ring.dx, expected.dx), 1e-5) << P << " ranks, " << T << " tokens, " << keys << " keys";
      if (T <= 2) continue;
      EXPECT_GT(apart(expected.y, plain(x.to(at::kDouble), dy.to(at::kDouble), shape).y), 1e-2);
    }
  }
}

TEST_P(RingOfRanks, DropsWhatOneRankDrops) {
  for (const std::vector<int64_t>& documents : {std::vector<int64_t>(), packed(13)}) {
    const int P = GetParam();
    const AttentionShape shape{.heads = 4, .kv_heads = 2, .dropout = 0.3, .first_head = 4};
    const at::Tensor x = wave({kBatch, 13, 8 * kWidth}, 0.37), dy = wave({kBatch, 13, 4 * kWidth}, 0.71);
    const at::Tensor leaf = x.clone().requires_grad_();
    const Context context{
        .training = true, .seed = 3, .step = 1, .samples = {5, 8}, .layer = 2, .document_begins = documents};
    const auto heads = [&](int64_t first, int64_t count) {
      return leaf.narrow(2, first * kWidth, count * kWidth).view({kBatch, 13, count, kWidth}).transpose(1, 2);
    };
    const at::Tensor y =
        attend(heads(0, 4), heads(4, 2), heads(6, 2), shape, context).transpose(1, 2).reshape(dy.sizes());
    const Attended ring = in_a_ring(x, dy, shape, P, documents);
    EXPECT_LT(apart(ring.y, y.detach()), 1e-5);
    EXPECT_LT(apart(ring.dx, torch::autograd::grad({y}, {leaf}, {dy})[0]), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingOfRanks, testing::Values(1, 2, 3, 4, 5, 6, 7));

}  // namespace
}  // namespace herd::nn
