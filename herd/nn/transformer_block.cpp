#include "herd/nn/transformer_block.h"

#include <algorithm>
#include <cmath>

#include "herd/base/error.h"
#include "herd/nn/dropout.h"
#include "herd/nn/feed_forward.h"

namespace herd::nn {
namespace {

constexpr double kInitDeviation = 0.02;  // standard deviation of initial weights

void add_norm(std::vector<ParameterSpec>& specs, const std::string& name, const TransformerShape& shape) {
  specs.push_back({name + ".weight", {shape.width}, false, Init::kOnes});
  if (shape.norm.has_bias()) specs.push_back({name + ".bias", {shape.width}});
}

void add_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t out, int64_t in, double deviation,
                bool bias) {
  specs.push_back({name + ".weight", {out, in}, true, Init::kNormal, deviation});
  if (bias) specs.push_back({name + ".bias", {out}});
}

double residual_deviation(int64_t layers) { return kInitDeviation / std::sqrt(2.0 * static_cast<double>(layers)); }

void add_feed_forward(std::vector<ParameterSpec>& specs, const std::string& name, int64_t ffn,
                      const TransformerShape& shape, int64_t layers) {
  const int64_t D = shape.width;
  if (shape.gated) add_linear(specs, name + ".gate", ffn, D, kInitDeviation, false);
  add_linear(specs, name + ".up", ffn, D, kInitDeviation, shape.biases);
  add_linear(specs, name + ".down", D, ffn, residual_deviation(layers), shape.biases);
}

}  // namespace

std::vector<ParameterSpec> transformer_parameters(const std::string& prefix, const TransformerShape& shape,
                                                  int64_t layers) {
  if (shape.heads < 1 || (shape.head_width == 0 && shape.width % shape.heads != 0)) {
    throw Error(Code::kBadConfig, "heads must divide the width: " + std::to_string(shape.width) + " % " +
                                      std::to_string(shape.heads) +
                                      " != 0\n  fix: model.heads that divides model.width");
  }
  const int64_t D = shape.width, A = shape.heads * shape.width_of_head();
  const int64_t K = A / shape.query_heads_per_key();
  std::vector<ParameterSpec> specs;
  add_norm(specs, prefix + "ln_1", shape);
  add_linear(specs, prefix + "attn.qkv", A + 2 * K, D, kInitDeviation, shape.biases);
  add_linear(specs, prefix + "attn.proj", D, A, residual_deviation(layers), shape.biases);
  add_norm(specs, prefix + "ln_2", shape);
  if (!shape.mixture) {
    add_feed_forward(specs, prefix + "mlp", shape.ffn, shape, layers);
    return specs;
  }
  add_linear(specs, prefix + "router", shape.mixture->experts, D, kInitDeviation, false);
  if (shape.mixture->shared_ffn > 0)
    add_feed_forward(specs, prefix + "shared", shape.mixture->shared_ffn, shape, layers);
  return specs;
}

std::vector<ParameterSpec> expert_parameters(const std::string& prefix, const TransformerShape& shape, int64_t layers) {
  const int64_t E = shape.mixture->experts, F = shape.mixture->ffn, D = shape.width;
  return {{prefix + "experts.gate.weight", {E, F, D}, true, Init::kNormal, kInitDeviation},
          {prefix + "experts.up.weight", {E, F, D}, true, Init::kNormal, kInitDeviation},
          {prefix + "experts.down.weight", {E, D, F}, true, Init::kNormal, residual_deviation(layers)}};
}

AttentionShape attention_shape(const TransformerShape& shape, int64_t heads, int64_t first_head) {
  return {.heads = heads,
          .kv_heads = std::max<int64_t>(1, heads / shape.query_heads_per_key()),
          .rotary = shape.rotary ? rotary_frequencies(*shape.rotary, shape.width_of_head()) : at::Tensor(),
          .dropout = shape.dropout,
          .recompute = shape.recompute_attention,
          .first_head = first_head};
}

LayerWeights::LayerWeights(const GroupsOfLayer& groups, const std::string& prefix, const TransformerShape& shape) {
  const auto find_pair = [&](const std::string& name, bool has_bias) -> Pair {
    return {&find(groups, prefix + name + ".weight"), has_bias ? &find(groups, prefix + name + ".bias") : nullptr};
  };
  ln_1 = find_pair("ln_1", shape.norm.has_bias());
  qkv = find_pair("attn.qkv", shape.biases);
  out = find_pair("attn.proj", shape.biases);
  ln_2 = find_pair("ln_2", shape.norm.has_bias());
  if (shape.mixture) return;
  if (shape.gated) gate = find_pair("mlp.gate", false);
  up = find_pair("mlp.up", shape.biases);
  down = find_pair("mlp.down", shape.biases);
}

TransformerBlock::TransformerBlock(std::string name, GroupsOfLayer groups, const std::string& prefix,
                                   const TransformerShape& shape)
    : Block(std::move(name), std::move(groups)),
      shape_(shape),
      attention_(attention_shape(shape, shape.heads)),
      weights_(this->groups(), prefix, shape) {
  if (shape.mixture) mixture_.emplace(this->groups(), prefix, *shape.mixture);
}

Tuple TransformerBlock::forward(const Tuple& x_BTD, const Context& context) {
  const at::Tensor& x = x_BTD.at(0);
  const auto& [ln_1, qkv, proj, ln_2, gate, up, down] = weights_;
  const at::Tensor n1 = norm(shape_.norm, x, *ln_1.weight, ln_1.bias);
  const at::Tensor attended = self_attention(n1, {*qkv.weight, qkv.bias, *proj.weight, proj.bias}, attention_, context);
  const std::pair<at::Tensor, at::Tensor> added =
      add_and_norm(shape_.norm, x, dropout(attended, shape_.dropout, DropoutSite::kAttentionOutput, context),
                   *ln_2.weight, ln_2.bias);
  const at::Tensor &h = added.first, &n2 = added.second;
  if (!mixture_) {
    const at::Tensor fed = feed_forward(n2, {gate.weight, *up.weight, up.bias, *down.weight, down.bias});
    return {h + dropout(fed, shape_.dropout, DropoutSite::kFeedForward, context)};
  }
  const auto [fed, losses_B2] = mixture_->forward(n2, context);
  Tuple out = {h + dropout(fed, shape_.dropout, DropoutSite::kFeedForward, context)};
  if (losses_B2.defined()) out.push_back(x_BTD.size() > 1 ? x_BTD[1] + losses_B2 : losses_B2);
  return out;
}

}  // namespace herd::nn
