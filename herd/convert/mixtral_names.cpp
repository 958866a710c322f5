#include "herd/convert/mixtral_names.h"

#include "herd/base/error.h"
#include "herd/convert/llama_names.h"
#include "herd/convert/mixture_names_internal.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

constexpr MixtureNames kMixtralNames{"block_sparse_moe.", "w1", "w3", "w2"};

constexpr double kMixtralTheta = 1e6, kMixtralEps = 1e-5;  // of a config.json that does not state them

void require_mixtral(const spec::RunFile::Model& model) {
  constexpr char kMixtral[] = "Mixtral";
  require_kind(model, kMixtral, "moe");
  require_flag(kMixtral, "qk_norm", model.qk_norm, false);
  require_flag(kMixtral, "qkv_bias", model.qkv_bias, false);
  require_softmax_router(model, kMixtral);
  require_flag(kMixtral, "normalize_weights", model.normalize_weights, true);
  if (model.shared_experts > 0)
    refuse_model(kMixtral, "shared_experts", std::to_string(model.shared_experts), "0", "--to qwen2_moe or deepseek");
  if (model.dense_layers > 0)
    refuse_model(kMixtral, "dense_layers", std::to_string(model.dense_layers), "0", "--to qwen3_moe or deepseek");
}

bool is_stated(const ConfigFile& config, std::string_view key) {
  for (const auto& [stated, member] : llama_format().members)
    if (stated == key && config.line_of(std::string(member)) > 0) return true;
  return false;
}

std::span<const std::pair<std::string_view, std::string_view>> mixtral_members() {
  static const auto all =
      llama_members_and({{"model.experts", "num_local_experts"}, {"model.top_k", "num_experts_per_tok"}});
  return all;
}

bool follows_from_config(std::string_view name) { return llama_format().is_derived(name); }

}  // namespace

std::vector<StoredTensor> mixtral_tensors(const Weight& weight, const spec::RunFile::Model& model) {
  return mixture_tensors(weight, model, kMixtralNames);
}

std::string format_mixtral_config(const TransformersConfig& config, std::string_view dtype) {
  const auto& m = config.model;
  auto json = nlohmann::ordered_json::parse(format_llama_config(config, dtype));
  json["architectures"] = {"MixtralForCausalLM"};
  json["model_type"] = "mixtral";
  json["intermediate_size"] = m.width_of_expert();
  json.erase("attention_bias");
  json.erase("mlp_bias");
  json["num_local_experts"] = m.experts;
  json["num_experts_per_tok"] = m.top_k;
  json["output_router_logits"] = false;
  json["router_jitter_noise"] = 0.0;
  json["sliding_window"] = nullptr;
  return json.dump(2) + "\n";
}

TransformersConfig parse_mixtral_config(std::string_view text, const std::string& file) {
  TransformersConfig config = parse_llama_config(text, file);
  const ConfigFile json(text, file);
  if (const double noise = json.real("router_jitter_noise", 0.0); noise != 0)
    json.refuse(Code::kBadConfig, "router_jitter_noise", "is " + std::to_string(noise) + ", herd's moe has 0.0",
                "a model whose router has no noise");
  auto& m = config.model;
  m.kind = "moe";
  m.experts = json.whole("num_local_experts", 8);
  m.top_k = json.whole("num_experts_per_tok", 2);
  if (!is_stated(json, "model.norm_eps")) m.norm_eps = kMixtralEps;
  if (!is_stated(json, "model.rope_theta")) m.rope_theta = kMixtralTheta;
  return config;
}

const TransformersFormat& mixtral_format() {
  static const TransformersFormat format{.type = "mixtral",
                                         .architecture = "Mixtral",
                                         .model = "Mixtral",
                                         .prefix = "model.",
                                         .prefix_when_tied = true,
                                         .embedding = "embed_tokens.weight",
                                         .head = "lm_head.weight",
                                         .tensors = mixtral_tensors,
                                         .is_derived = follows_from_config,
                                         .check_model = require_mixtral,
                                         .format_config = format_mixtral_config,
                                         .parse_config = parse_mixtral_config,
                                         .members = mixtral_members()};
  return format;
}

}  // namespace herd::convert
