#include "herd/nn/self_attention.h"

#include <ATen/ops/cat.h>

#include <tuple>

#include "herd/base/check.h"
#include "herd/nn/attention_with_dropout.h"
#include "herd/nn/document_attention.h"
#include "herd/nn/documents.h"
#include "herd/nn/key_value_cache.h"
#include "herd/nn/linear.h"
#include "herd/nn/rotary.h"

namespace herd::nn {
namespace {

// On CPUs, fp16 is multiplied in fp32, as linear.h does.
void multiply_in_fp32(at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  if (q.is_cpu() && q.scalar_type() == at::kHalf) q = q.to(at::kFloat), k = k.to(at::kFloat), v = v.to(at::kFloat);
}

at::Tensor weigh(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                 const AttentionShape& shape, const Context& context) {
  if (shape.dropout > 0 && context.training)
    return attention_with_dropout(q, k, v, {shape.causal, shape.dropout, shape.recompute, shape.first_head}, context);
  if (!context.document_begins.empty()) return document_attention(q, k, v, context.document_begins, causal);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal, {}, q.size(1) != k.size(1));
}

}  // namespace

at::Tensor normalise_heads(const at::Tensor& product, const HeadNorms& norms, int64_t queries, int64_t keys) {
  if (norms.q == nullptr) return product;
  const int64_t d = norms.q->spec().sizes[0];
  Tuple parts = product.split_with_sizes({queries * d, keys * d, product.size(-1) - (queries + keys) * d}, -1);
  const auto normalise = [&](at::Tensor& heads, Parameter& gain) {
    if (heads.size(-1) > 0) heads = norm(norms.style, heads.unflatten(-1, {-1, d}), gain, nullptr).flatten(-2);
  };
  normalise(parts[0], *norms.q);
  normalise(parts[1], *norms.k);
  return at::cat(parts, -1);
}

at::Tensor attend(at::Tensor q_BHTd, at::Tensor k_BKTd, at::Tensor v_BKTd, const AttentionShape& shape,
                  const Context& context) {
  multiply_in_fp32(q_BHTd, k_BKTd, v_BKTd);
  return weigh(q_BHTd, k_BKTd, v_BKTd, shape.causal, shape, context);
}

at::Tensor self_attention(const at::Tensor& x_BTD, const AttentionParameters& parameters, const AttentionShape& shape,
                          const Context& context) {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1), H = shape.heads, K = shape.kv_heads;
  const bool has_kv_weight = parameters.kv_weight != nullptr;
  const int64_t d = parameters.qkv_weight.spec().sizes[0] / (has_kv_weight ? H : H + 2 * K);
  // Returns the heads of one product, of which the first ones, of queries and then of keys, have norms and turn.
  const auto project = [&](Parameter& weight, Parameter* bias, int64_t queries, int64_t keys,
                           std::vector<int64_t> parts) {
    at::Tensor product = normalise_heads(linear(x_BTD, weight, bias), parameters.norms, queries, keys);
    const int64_t num_rotated = queries + keys;
    if (shape.rotary.defined()) {
      product = context.document_begins.empty() ? rotate_heads(product, shape.rotary, num_rotated, {{context.past, T}})
                                                : rotate_heads_by_row(product, shape.rotary, num_rotated,
                                                                      document_positions(context, B, {.tokens = T}));
    }
    for (int64_t& part : parts) part *= d;
    Tuple heads = product.split_with_sizes(parts, -1);
    for (at::Tensor& part : heads) part = part.view({B, T, -1, d}).transpose(1, 2);
    return heads;
  };
  Tuple qkv = project(parameters.qkv_weight, parameters.qkv_bias, H, has_kv_weight ? 0 : K,
                      has_kv_weight ? std::vector<int64_t>{H} : std::vector<int64_t>{H, K, K});
  if (has_kv_weight) {
    for (at::Tensor& part : project(*parameters.kv_weight, parameters.kv_bias, 0, K, {K, K})) qkv.push_back(part);
  }
  at::Tensor q = qkv[0], k = qkv[1], v = qkv[2];
  qkv.clear();
  multiply_in_fp32(q, k, v);
  bool causal = shape.causal;
  if (context.cache != nullptr) {
    HERD_CHECK(T == 1 || context.past == 0, "a cache takes a whole prompt, then one token at a time");
    causal = causal && T > 1;
    std::tie(k, v) = context.cache->append(k, v, context.past);
  }
  const at::Tensor y_BHTd = weigh(q, k, v, causal, shape, context);
  return linear(y_BHTd.transpose(1, 2).reshape({B, T, H * d}).to(x_BTD.scalar_type()), parameters.out_weight,
                parameters.out_bias);
}

}  // namespace herd::nn
