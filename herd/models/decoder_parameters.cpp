#include "herd/base/error.h"
#include "herd/models/decoder_parameters_internal.h"

namespace herd::models {
namespace {

using nn::Init;
using nn::ParameterSpec;
using Shape = spec::RunFile::Model;

constexpr double kInitDeviation = 0.02;  // standard deviation of initial weights

nn::NormKind norm_kind(const std::string& name) {
  if (name == "layernorm") return nn::NormKind::kLayerNorm;
  if (name == "rmsnorm") return nn::NormKind::kRmsNorm;
  throw Error(Code::kBadConfig, "model.norm = \"" + name + "\" is unknown\n  fix: \"layernorm\" or \"rmsnorm\"");
}

nn::RotaryScaling rotary_scaling(const std::string& name) {
  if (name == "none") return nn::RotaryScaling::kNone;
  if (name == "linear") return nn::RotaryScaling::kLinear;
  if (name == "llama3") return nn::RotaryScaling::kLlama3;
  throw Error(Code::kBadConfig,
              "model.rope_scaling = \"" + name + "\" is unknown\n  fix: \"none\", \"linear\" or \"llama3\"");
}

nn::Rotary rotary(const Shape& shape) {
  return {.theta = shape.rope_theta,
          .scaling = rotary_scaling(shape.rope_scaling),
          .factor = shape.rope_factor,
          .low_freq_factor = shape.rope_low_freq_factor,
          .high_freq_factor = shape.rope_high_freq_factor,
          .original_context = shape.rope_original_context};
}

std::optional<nn::MixtureShape> mixture(const Shape& shape) {
  if (!shape.is_moe()) return std::nullopt;
  const int64_t ffn = shape.width_of_expert();
  return nn::MixtureShape{
      .experts = shape.experts,
      .ffn = ffn,
      .shared_ffn = shape.shared_experts * ffn,
      .shared_gate = shape.has_shared_gate(),
      .router = {shape.router == "sigmoid" ? nn::RouterKind::kSigmoid : nn::RouterKind::kSoftmax, shape.top_k,
                 shape.normalize_weights, shape.has_router_losses(), shape.capacity_factor},
      .bias_balancing = shape.bias_balancing};
}

}  // namespace

nn::TransformerShape layer_shape(const Shape& shape, bool recompute_attention) {
  const bool llama = shape.kind == "llama" || shape.is_moe();
  if (!llama && !shape.is_bert() && shape.kind != "gpt") {
    throw Error(Code::kBadConfig,
                "model.kind = \"" + shape.kind +
                    "\" is not in this version\n  fix: model.kind = \"gpt\", \"llama\", \"bert\" or \"moe\"");
  }
  return {.width = shape.width,
          .heads = shape.heads,
          .ffn = shape.ffn == 0 ? 4 * shape.width : shape.ffn,
          .kv_heads = shape.kv_heads,
          .head_width = shape.head_width,
          .norm = {llama ? nn::NormKind::kRmsNorm : norm_kind(shape.norm), shape.norm_eps},
          .gated = llama,
          .biases = !llama,
          .qkv_bias = shape.has_qkv_bias(),
          .qk_norm = shape.has_qk_norm(),
          .rotary = llama ? std::optional(rotary(shape)) : std::nullopt,
          .causal = !shape.is_bert(),
          .exact_gelu = shape.is_bert(),
          .norms_after = shape.is_bert(),
          .dropout = shape.dropout,
          .recompute_attention = recompute_attention,
          .mixture = mixture(shape)};
}

std::map<std::string, ParameterSpec> decoder_parameters(const Shape& shape, const nn::TransformerShape& layer) {
  std::map<std::string, ParameterSpec> out;
  const auto add = [&](const std::vector<ParameterSpec>& specs) {
    for (const ParameterSpec& spec : specs) out.emplace(spec.name, spec);
  };
  add({{"wte.weight", {shape.vocab, shape.width}, true, Init::kNormal, kInitDeviation},
       {"wpe.weight", {shape.context, shape.width}, false, Init::kNormal, kInitDeviation},
       {"ln_f.weight", {layer.width}, false, Init::kOnes},
       {"ln_f.bias", {layer.width}},
       {"head.weight", {shape.vocab, shape.width}, true, Init::kNormal, kInitDeviation}});
  if (shape.is_bert()) {
    add({{"segments.weight", {2, shape.width}, false, Init::kNormal, kInitDeviation},
         {"masked.dense.weight", {shape.width, shape.width}, true, Init::kNormal, kInitDeviation},
         {"masked.dense.bias", {shape.width}},
         {"masked.bias", {shape.vocab}},
         {"masked.weight", {shape.vocab, shape.width}, true, Init::kNormal, kInitDeviation}});
    for (const std::string norm : {"ln_embedding", "masked.ln"})
      add({{norm + ".weight", {shape.width}, false, Init::kOnes}, {norm + ".bias", {shape.width}}});
  }
  nn::TransformerShape dense = layer;  // without experts
  dense.mixture.reset();
  for (int64_t l = 0; l < shape.layers; ++l) {
    const std::string prefix = "h." + std::to_string(l) + ".";
    const bool has_experts = layer.mixture && l >= shape.dense_layers;
    add(nn::transformer_parameters(prefix, has_experts ? layer : dense, shape.layers));
    if (has_experts) add(nn::expert_parameters(prefix, layer, shape.layers));
  }
  return out;
}

}  // namespace herd::models
