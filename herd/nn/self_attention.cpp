#include "herd/nn/self_attention.h"

#include <tuple>

#include "herd/base/check.h"
#include "herd/nn/attention_with_dropout.h"
#include "herd/nn/key_value_cache.h"
#include "herd/nn/linear.h"
#include "herd/nn/rotary.h"

namespace herd::nn {

at::Tensor self_attention(const at::Tensor& x_BTD, const AttentionParameters& parameters, const AttentionShape& shape,
                          const Context& context) {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1), H = shape.heads, K = shape.kv_heads;
  const bool apart = parameters.kv_weight != nullptr;
  const int64_t d = parameters.qkv_weight.spec().sizes[0] / (apart ? H : H + 2 * K);
  // The heads of one product, of which the first `turned` ones turn.
  const auto project = [&](Parameter& weight, Parameter* bias, int64_t turned, std::vector<int64_t> parts) {
    at::Tensor all = linear(x_BTD, weight, bias);
    if (shape.rotary.defined()) all = rotate_heads(all, shape.rotary, turned, context.past);
    for (int64_t& part : parts) part *= d;
    Tuple heads = all.split_with_sizes(parts, -1);
    for (at::Tensor& part : heads) part = part.view({B, T, -1, d}).transpose(1, 2);
    return heads;
  };
  Tuple qkv = project(parameters.qkv_weight, parameters.qkv_bias, apart ? H : H + K,
                      apart ? std::vector<int64_t>{H} : std::vector<int64_t>{H, K, K});
  if (apart) {
    for (at::Tensor& part : project(*parameters.kv_weight, parameters.kv_bias, K, {K, K})) qkv.push_back(part);
  }
  at::Tensor q = qkv[0], k = qkv[1], v = qkv[2];
  qkv.clear();
  if (x_BTD.is_cpu() && x_BTD.scalar_type() == at::kHalf)  // as in linear.h
    q = q.to(at::kFloat), k = k.to(at::kFloat), v = v.to(at::kFloat);
  bool causal = shape.causal;
  if (context.cache != nullptr) {
    HERD_CHECK(T == 1 || context.past == 0, "a cache takes a whole prompt, then one token at a time");
    causal = causal && T > 1;
    std::tie(k, v) = context.cache->append(k, v, context.past);
  }
  const at::Tensor y_BHTd =
      shape.dropout > 0 && context.training
          ? attention_with_dropout(q, k, v, {shape.causal, shape.dropout, shape.recompute, shape.first_head}, context)
          : at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal, {}, H != K);
  return linear(y_BHTd.transpose(1, 2).reshape({B, T, H * d}).to(x_BTD.scalar_type()), parameters.out_weight,
                parameters.out_bias);
}

}  // namespace herd::nn
