// Attention of tokens that ranks share is attention, in a ring and by all-to-all, with real messages between the ranks:
// outputs and gradients are those of the plain equation in fp64, whatever the number of ranks, tokens and key heads,
// under a causal mask or none, of whole sequences and of packed documents.
#include "attention_of_ranks_internal.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "herd/bridge/tensor_buffer.h"
#include "herd/nn/context_parts.h"
#include "herd/nn/documents.h"
#include "herd/nn/run_block.h"
#include "tests/support/sample.h"

namespace herd::nn {
namespace {

// Plain attention of whole sequences, or of packed ones, in the type of x.
Attended plain(const at::Tensor& x, const at::Tensor& dy, const AttentionShape& shape,
               const std::vector<int64_t>& documents) {
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
    const at::Tensor is_other = begin_of.view({kBatch, 1, T, 1}) != begin_of.view({kBatch, 1, 1, T});
    scores = scores.masked_fill(is_other, -INFINITY);
  }
  const at::Tensor y = at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({kBatch, T, H * kWidth});
  return {y.detach(), torch::autograd::grad({y}, {leaf}, {dy})[0]};
}

// The blocks of context_parts.h, whose projections leave numbers as they are, with an all-to-all between them.
Attended by_all_to_all(const at::Tensor& x, const at::Tensor& dy, const AttentionShape& shape, int ranks,
                       const std::vector<int64_t>& documents) {
  const TransformerShape layer{
      .heads = shape.heads, .kv_heads = shape.kv_heads, .head_width = kWidth, .causal = shape.causal};
  return on_ranks(x, dy, ranks, /*zigzag=*/false, documents,
                  [&](const at::Tensor& own_x, const at::Tensor& own_dy, const Context& context) -> Attended {
                    const int64_t W = own_x.size(2), A = own_dy.size(2);
                    OwnedGroup qkv({{.name = "qkv", .sizes = {W, W}}}), out({{.name = "out", .sizes = {A, A}}});
                    qkv.weights.view({W, W}).copy_(at::eye(W));
                    out.weights.view({A, A}).copy_(at::eye(A));
                    Parameter &qkv_weight = qkv.group->find("qkv"), &out_weight = out.group->find("out");
                    const AttentionParameters parameters{qkv_weight, nullptr, out_weight, nullptr};
                    HeadProjection projection("h.qkv", {qkv.group}, parameters, layer, {}, ranks);
                    HeadAttention attention("h.attention", layer, ranks);
                    HeadOutput output("h.projection", {out.group}, out_weight, nullptr, /*gives_rows=*/false);
                    const auto exchanged = [&](const at::Tensor& by_rank) {
                      const at::Tensor from = by_rank.contiguous(), to = at::empty_like(from);
                      context.tensor_ranks->all_to_all(from, to);
                      return to;
                    };
                    Graph of_projection = run_forward(projection, {own_x}, context);
                    Graph of_attention = run_forward(attention, {exchanged(take_outputs(of_projection)[0])}, context);
                    Graph of_output = run_forward(output, {exchanged(take_outputs(of_attention)[0])}, context);
                    const at::Tensor y = take_outputs(of_output)[0];
                    const at::Tensor dattended = run_backward(std::move(of_output), {own_dy})[0];
                    const at::Tensor dqkv = run_backward(std::move(of_attention), {exchanged(dattended)})[0];
                    return {y, run_backward(std::move(of_projection), {exchanged(dqkv)})[0]};
                  });
}

using Heads = std::pair<int64_t, int64_t>;  // of queries, and of keys

// Those that ranks can share; a ring takes any.
std::vector<Heads> heads_of(int ranks, bool ring) {
  if (ring) return {{3, 3}, {4, 2}, {4, 1}, {6, 3}};
  std::vector<Heads> out;
  for (const int64_t heads : {ranks, 2 * ranks}) {
    for (int64_t keys = 1; keys <= heads; ++keys) {
      const bool shares = keys % ranks == 0 || ranks % keys == 0;
      if (heads % keys == 0 && shares) out.emplace_back(heads, keys);
    }
  }
  return out;
}

TEST(AttentionOfRanks, IsThePlainEquation) {
  std::map<std::string, int> count;  // of what was drawn
  const auto stride = static_cast<size_t>(one_in(13, 61));
  size_t index = 0;
  for (const bool ring : {true, false}) {
    for (int P = 1; P <= 7; ++P) {
      for (const auto& [H, K] : heads_of(P, ring)) {
        for (const int64_t T : {1, 2 * P - 1, 2 * P, 37}) {
          for (const bool causal : {true, false}) {
            for (const bool packs : {false, true}) {
              if (index++ % stride != 0) continue;
              const at::Tensor x = wave({kBatch, T, (H + 2 * K) * kWidth}, 0.37);
              const at::Tensor dy = wave({kBatch, T, H * kWidth}, 0.71);
              const AttentionShape shape{.heads = H, .kv_heads = K, .causal = causal};
              const std::vector<int64_t> documents = packs ? packed(T) : std::vector<int64_t>();
              const auto of_ranks = ring ? in_a_ring : by_all_to_all;
              const std::string text = std::to_string(P) + (ring ? " ranks in a ring, " : " ranks by all-to-all, ") +
                                       std::to_string(T) + " tokens, " + std::to_string(K) + " of " +
                                       std::to_string(H) + " heads with keys" + (causal ? ", causal" : ", full") +
                                       (packs ? ", documents" : "");
              const Attended expected = plain(x.to(at::kDouble), dy.to(at::kDouble), shape, documents);
              const Attended found = of_ranks(x, dy, shape, P, documents);
              EXPECT_LT(apart(found.y, expected.y), 1e-5) << text;
              EXPECT_LT(apart(found.dx, expected.dx), 1e-5) << text;
              if (ring && P % 2 == 1) {
                const Attended exact = in_a_ring(x.to(at::kDouble), dy.to(at::kDouble), shape, P, documents);
                EXPECT_LT(apart(exact.y, expected.y), 1e-12) << text;
                EXPECT_LT(apart(exact.dx, expected.dx), 1e-12) << text;
              }
              const std::string kind = ring ? "ring" : "all-to-all";
              ++count[kind + (causal ? " causal" : " full") + (packs ? " documents" : "")];
              if (K < P) ++count[kind + " with fewer key heads than ranks"];
              if (K > 1 && K < P) ++count[kind + " with several, but fewer than ranks"];
              ++count[kind + " of " + std::to_string(P)];
              if (T < P) ++count[kind + " with ranks of padding alone"];
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(count.size(), 2U * (4 + 3 + 7)) << "the sample has all kinds";
  std::printf("%zu cases of attention, one of %zu\n", index / stride, stride);
}

// Documents and the causal mask matter: without them these tests compare other numbers.
TEST(AttentionOfRanks, DependsOnMaskAndDocuments) {
  const at::Tensor x = wave({kBatch, 13, 6 * kWidth}, 0.37).to(at::kDouble),
                   dy = wave({kBatch, 13, 2 * kWidth}, 0.71).to(at::kDouble);
  const Attended causal = plain(x, dy, {.heads = 2, .kv_heads = 2}, {});
  EXPECT_GT(apart(causal.y, plain(x, dy, {.heads = 2, .kv_heads = 2, .causal = false}, {}).y), 1e-2);
  EXPECT_GT(apart(causal.y, plain(x, dy, {.heads = 2, .kv_heads = 2}, packed(13)).y), 1e-2);
}

}  // namespace
}  // namespace herd::nn
