#include "herd/convert/deepseek_names.h"

#include "herd/base/error.h"
#include "herd/convert/llama_names.h"
#include "herd/convert/mixture_names_internal.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

using Model = spec::RunFile::Model;

constexpr MixtureNames kDeepseekNames{"mlp.", "gate_proj", "up_proj", "down_proj", "shared_experts."};
constexpr char kDeepseek[] = "DeepSeek-MoE";

std::vector<StoredTensor> deepseek_tensors(const Weight& weight, const Model& model) {
  return mixture_tensors(weight, model, kDeepseekNames);
}

void require_deepseek(const Model& model) {
  require_kind(model, kDeepseek, "moe");
  require_flag(kDeepseek, "qk_norm", model.qk_norm, false);
  require_flag(kDeepseek, "qkv_bias", model.qkv_bias, false);
  require_softmax_router(model, kDeepseek);
  require_flag(kDeepseek, "shared_gate", model.has_shared_gate(), false);
  // Its published code divides only the weights of several experts, and takes width / heads.
  if (model.top_k == 1) require_flag(kDeepseek, "normalize_weights", model.normalize_weights, false);
  if (model.head_width != 0 && model.head_width * model.heads != model.width)
    refuse_model(kDeepseek, "head_width", std::to_string(model.head_width), "width / heads", "--to herd");
}

std::string format_deepseek_config(const TransformersConfig& config, std::string_view dtype) {
  const Model& m = config.model;
  auto json = nlohmann::ordered_json::parse(format_llama_config(config, dtype));
  json["architectures"] = {"DeepseekForCausalLM"};
  json["model_type"] = "deepseek";
  json.erase("mlp_bias");
  if (m.rope_scaling != "none") json["rope_scaling"]["type"] = m.rope_scaling;
  json["n_routed_experts"] = m.experts;
  json["n_shared_experts"] = nullptr;
  if (m.shared_experts > 0) json["n_shared_experts"] = m.shared_experts;
  json["num_experts_per_tok"] = m.top_k;
  json["moe_intermediate_size"] = m.width_of_expert();
  json["first_k_dense_replace"] = m.dense_layers;
  json["moe_layer_freq"] = 1;
  json["scoring_func"] = "softmax";
  json["norm_topk_prob"] = m.normalize_weights;
  return json.dump(2) + "\n";
}

// Checks the members that change what its mixtures compute. The value of herd's moe stands first.
void check_mixture(const ConfigFile& json) {
  const std::pair<const char*, std::vector<Json>> expected[] = {{"moe_layer_freq", {1}},
                                                                {"scoring_func", {"softmax"}},
                                                                {"topk_method", {"greedy"}},
                                                                {"routed_scaling_factor", {1}},
                                                                {"kv_lora_rank", {nullptr}}};
  for (const auto& [name, values] : expected) {
    const Json* value = json.find(name);
    if (value == nullptr || *value == values[0]) continue;
    json.refuse(Code::kBadConfig, name,
                "is " + value->dump() + ", herd's moe has " + (values[0].is_null() ? "none" : values[0].dump()),
                "a model of DeepSeek-MoE's kind");
  }
}

TransformersConfig parse_deepseek_config(std::string_view text, const std::string& file) {
  const ConfigFile json(text, file);
  check_mixture(json);
  TransformersConfig config = parse_llama_members(json, true);
  Model& m = config.model;
  m.kind = "moe";
  m.experts = json.whole("n_routed_experts");
  m.shared_experts = json.count("n_shared_experts", 0);
  m.top_k = json.whole("num_experts_per_tok");
  m.expert_ffn = json.whole("moe_intermediate_size");
  m.dense_layers = json.count("first_k_dense_replace", 0);
  m.normalize_weights = json.flag("norm_topk_prob", false) && m.top_k > 1;
  return config;
}

std::span<const std::pair<std::string_view, std::string_view>> deepseek_members() {
  static const auto all = llama_members_and({{"model.experts", "n_routed_experts"},
                                             {"model.top_k", "num_experts_per_tok"},
                                             {"model.expert_ffn", "moe_intermediate_size"},
                                             {"model.shared_experts", "n_shared_experts"},
                                             {"model.dense_layers", "first_k_dense_replace"}});
  return all;
}

}  // namespace

const TransformersFormat& deepseek_format() {
  static const TransformersFormat format = [] {
    TransformersFormat made = llama_format();
    made.type = "deepseek";
    made.architecture = "DeepseekForCausalLM";
    made.model = kDeepseek;
    made.tensors = deepseek_tensors;
    made.check_model = require_deepseek;
    made.format_config = format_deepseek_config;
    made.parse_config = parse_deepseek_config;
    made.members = deepseek_members();
    return made;
  }();
  return format;
}

}  // namespace herd::convert
