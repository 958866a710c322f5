#include "herd/nn/self_attention.h"

#include <cmath>
#include <tuple>

#include "herd/base/check.h"
#include "herd/nn/dropout.h"
#include "herd/nn/key_value_cache.h"
#include "herd/nn/linear.h"

namespace herd::nn {
namespace {

// The plain equation, with dropout on the attention weights: torch's fused kernel has none on CPU.
at::Tensor attention_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionShape& shape, const Context& context) {
  const int64_t T = q.size(2);
  at::Tensor scores = at::matmul(q * (1 / std::sqrt(static_cast<double>(q.size(3)))), k.transpose(-2, -1));
  if (shape.causal) scores = scores + at::full({T, T}, -INFINITY, scores.options()).triu_(1);
  return at::matmul(dropout(at::softmax(scores, -1), shape.dropout, Site::kAttention, context), v);
}

}  // namespace

at::Tensor self_attention(const at::Tensor& x_BTD, const AttentionParameters& parameters, const AttentionShape& shape,
                          const Context& context) {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1), D = x_BTD.size(2), H = shape.heads;
  const Tuple qkv = linear(x_BTD, parameters.qkv_weight, parameters.qkv_bias).split(D, -1);
  const auto heads = [&](const at::Tensor& part_BTD) { return part_BTD.view({B, T, H, D / H}).transpose(1, 2); };
  at::Tensor q = heads(qkv[0]), k = heads(qkv[1]), v = heads(qkv[2]);
  if (x_BTD.is_cpu() && x_BTD.scalar_type() == at::kHalf)  // as in linear.h
    q = q.to(at::kFloat), k = k.to(at::kFloat), v = v.to(at::kFloat);
  bool causal = shape.causal;
  if (context.cache != nullptr) {
    HERD_CHECK(T == 1 || context.cache->length() == 0, "a cache takes a whole prompt, then one token at a time");
    causal = causal && T > 1;
    std::tie(k, v) = context.cache->append(context.layer, k, v);
  }
  const at::Tensor y_BHTd = shape.dropout > 0 && context.training
                                ? attention_with_dropout(q, k, v, shape, context)
                                : at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  return linear(y_BHTd.transpose(1, 2).reshape({B, T, D}).to(x_BTD.scalar_type()), parameters.out_weight,
                parameters.out_bias);
}

}  // namespace herd::nn
