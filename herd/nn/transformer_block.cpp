#include "herd/nn/transformer_block.h"

#include <cmath>

#include "herd/base/error.h"
#include "herd/nn/dropout.h"
#include "herd/nn/linear.h"
#include "herd/nn/self_attention.h"

namespace herd::nn {
namespace {

constexpr double kDeviation = 0.02;

void add_norm(std::vector<ParameterSpec>& specs, const std::string& name, const TransformerShape& shape) {
  specs.push_back({name + ".weight", {shape.width}, false, Init::kOnes});
  if (shape.norm == NormKind::kLayerNorm) specs.push_back({name + ".bias", {shape.width}});
}

void add_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t out, int64_t in, double deviation) {
  specs.push_back({name + ".weight", {out, in}, true, Init::kNormal, deviation});
  specs.push_back({name + ".bias", {out}});
}

}  // namespace

std::vector<ParameterSpec> transformer_parameters(const std::string& prefix, const TransformerShape& shape,
                                                  int64_t layers) {
  if (shape.heads < 1 || shape.width % shape.heads != 0) {
    throw Error(Code::kBadConfig, "heads must divide the width: " + std::to_string(shape.width) + " % " +
                                      std::to_string(shape.heads) +
                                      " != 0\n  fix: model.heads that divides model.width");
  }
  const int64_t D = shape.width, F = shape.ffn;
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
  std::vector<ParameterSpec> specs;
  add_norm(specs, prefix + "ln_1", shape);
  add_linear(specs, prefix + "attn.qkv", 3 * D, D, kDeviation);
  add_linear(specs, prefix + "attn.proj", D, D, residual);
  add_norm(specs, prefix + "ln_2", shape);
  add_linear(specs, prefix + "mlp.up", F, D, kDeviation);
  add_linear(specs, prefix + "mlp.down", D, F, residual);
  return specs;
}

TransformerBlock::TransformerBlock(std::string name, std::vector<std::shared_ptr<ParameterGroup>> groups,
                                   const std::string& prefix, const TransformerShape& shape)
    : Block(std::move(name), std::move(groups)),
      shape_(shape),
      prefix_(prefix),
      ln_1_(find("ln_1")),
      qkv_(find("attn.qkv")),
      out_(find("attn.proj")),
      ln_2_(find("ln_2")),
      up_(find("mlp.up")),
      down_(find("mlp.down")) {}

TransformerBlock::Weights TransformerBlock::find(const std::string& name) const {
  const bool has_bias = shape_.norm == NormKind::kLayerNorm || !name.starts_with("ln");
  return {&nn::find(groups(), prefix_ + name + ".weight"),
          has_bias ? &nn::find(groups(), prefix_ + name + ".bias") : nullptr};
}

Tuple TransformerBlock::forward(const Tuple& x_BTD, const Context& context) {
  const at::Tensor& x = x_BTD.at(0);
  const at::Tensor n1 = norm(shape_.norm, x, *ln_1_.weight, ln_1_.bias);
  const at::Tensor mixed = self_attention(
      n1, {*qkv_.weight, qkv_.bias, *out_.weight, out_.bias},
      {.heads = shape_.heads, .dropout = shape_.dropout, .recompute = shape_.recompute_attention}, context);
  const at::Tensor h = x + dropout(mixed, shape_.dropout, Site::kAttentionOutput, context);
  const at::Tensor n2 = norm(shape_.norm, h, *ln_2_.weight, ln_2_.bias);
  const at::Tensor up = at::gelu(linear(n2, *up_.weight, up_.bias), "tanh");
  return {h + dropout(linear(up, *down_.weight, down_.bias), shape_.dropout, Site::kFeedForward, context)};
}

}  // namespace herd::nn
