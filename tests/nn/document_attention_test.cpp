// Attention of packed sequences is that of each document alone, forward and backward, bit for bit; so it is with
// dropout's plain equation, but for rounding.
#include "herd/nn/document_attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "herd/nn/attention_with_dropout.h"
#include "herd/nn/documents.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t kSequences = 2, kQueryHeads = 4, kHeadWidth = 8, kSequenceTokens = 300;
const std::vector<int64_t> kDocumentBegins = {0, 1, 41, 297, 300, 350};  // of 1, 40, 256, 3, 50 and 250 tokens

struct OfPacked {
  at::Tensor y, dq, dk, dv;
};

template <class Attention>
OfPacked run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& dy,
             const Attention& attention) {
  const std::vector<at::Tensor> leaves = {q.detach().clone().requires_grad_(), k.detach().clone().requires_grad_(),
                                          v.detach().clone().requires_grad_()};
  at::AutoGradMode with_grad(true);
  const at::Tensor y = attention(leaves[0], leaves[1], leaves[2]);
  const auto gradients = torch::autograd::grad({y}, leaves, {dy});
  return {y.detach(), gradients[0], gradients[1], gradients[2]};
}

class OfKeyHeads : public testing::TestWithParam<std::pair<int64_t, at::ScalarType>> {};

TEST_P(OfKeyHeads, IsThatOfEachDocumentAlone) {
  const auto [keys, type] = GetParam();
  const auto heads = [&, type = type](int64_t count, double frequency) {
    return wave({kSequences, kSequenceTokens, count, kHeadWidth}, frequency).transpose(1, 2).to(type);
  };
  const at::Tensor q = heads(kQueryHeads, 0.37), k = heads(keys, 0.71), v = heads(keys, 0.23),
                   dy = heads(kQueryHeads, 0.11);
  for (const bool causal : {true, false}) {
    const OfPacked packed = run(q, k, v, dy, [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      return document_attention(a, b, c, kDocumentBegins, causal);
    });
    for (int64_t row = 0; row < kSequences; ++row) {
      for (const auto& [begin, count] : documents_of(kDocumentBegins, row, kSequenceTokens)) {
        const auto part = [&, begin = begin, count = count](const at::Tensor& t) {
          return t.narrow(0, row, 1).narrow(2, begin, count);
        };
        const OfPacked alone = run(
            part(q), part(k), part(v), part(dy), [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
              return at::scaled_dot_product_attention(a, b, c, {}, 0.0, causal, {}, a.size(1) != b.size(1));
            });
        EXPECT_TRUE(part(packed.y).equal(alone.y))
            << "document at " << begin << " of row " << row << ", causal " << causal;
        EXPECT_TRUE(part(packed.dq).equal(alone.dq));
        EXPECT_TRUE(part(packed.dk).equal(alone.dk));
        EXPECT_TRUE(part(packed.dv).equal(alone.dv));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DocumentAttention, OfKeyHeads,
                         testing::Values(std::pair<int64_t, at::ScalarType>(4, at::kFloat), std::pair(2, at::kFloat),
                                         std::pair(1, at::kBFloat16), std::pair(4, at::kDouble)));

// Dropout with a probability that drops nothing in these few elements leaves the plain equation with its mask.
TEST(DocumentAttention, TheEquationWithDropoutMasksDocumentsToo) {
  const auto heads = [&](int64_t count, double frequency) {
    return wave({kSequences, kSequenceTokens, count, kHeadWidth}, frequency).transpose(1, 2);
  };
  const at::Tensor q = heads(kQueryHeads, 0.37), k = heads(2, 0.71), v = heads(2, 0.23), dy = heads(kQueryHeads, 0.11);
  const Context context{.training = true, .seed = 1, .samples = {4, 7}, .document_begins = kDocumentBegins};
  for (const bool causal : {true, false}) {
    const OfPacked packed = run(q, k, v, dy, [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      return document_attention(a, b, c, kDocumentBegins, causal);
    });
    for (const bool recompute : {false, true}) {
      const OfPacked plain = run(q, k, v, dy, [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
        return attention_with_dropout(a, b, c, {causal, 1e-12, recompute}, context);
      });
      for (const auto& [a, b] : {std::pair(plain.y, packed.y), std::pair(plain.dq, packed.dq),
                                 std::pair(plain.dk, packed.dk), std::pair(plain.dv, packed.dv)})
        EXPECT_TRUE(a.allclose(b, 1e-4, 1e-5)) << (a - b).abs().max().item<double>();
    }
  }
}

}  // namespace
}  // namespace herd::nn
