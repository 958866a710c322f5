#include "herd/convert/qwen_names.h"

#include <numeric>
#include <set>

#include "herd/base/error.h"
#include "herd/convert/llama_names.h"
#include "herd/convert/mixture_names_internal.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

using Model = spec::RunFile::Model;

constexpr MixtureNames kQwenNames{"mlp.", "gate_proj", "up_proj", "down_proj", "shared_expert."};

constexpr struct {
  std::string_view type, architecture, model;
} kNamesOf[] = {{"qwen2", "Qwen2ForCausalLM", "Qwen2"},
                {"qwen3", "Qwen3ForCausalLM", "Qwen3"},
                {"qwen2_moe", "Qwen2MoeForCausalLM", "Qwen2-MoE"},
                {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3-MoE"}};

constexpr bool is_moe(Qwen which) { return which == Qwen::k2Moe || which == Qwen::k3Moe; }
constexpr bool has_head_norms(Qwen which) { return which == Qwen::k3 || which == Qwen::k3Moe; }

std::vector<StoredTensor> qwen_tensors(const Weight& weight, const Model& model) {
  return mixture_tensors(weight, model, kQwenNames);
}

template <Qwen kWhich>
void require_qwen(const Model& model) {
  const std::string name(kNamesOf[static_cast<size_t>(kWhich)].model);
  require_kind(model, name, is_moe(kWhich) ? "moe" : "llama");
  require_flag(name, "qk_norm", model.qk_norm, has_head_norms(kWhich));
  if (kWhich != Qwen::k2Moe) require_flag(name, "qkv_bias", model.qkv_bias, kWhich == Qwen::k2);
  if (!is_moe(kWhich)) return;
  require_softmax_router(model, name);
  if ((model.shared_experts > 0) != (kWhich == Qwen::k2Moe))
    refuse_model(name, "shared_experts", std::to_string(model.shared_experts),
                 kWhich == Qwen::k2Moe ? "at least 1" : "0", "--to herd");
  if (kWhich == Qwen::k2Moe) require_flag(name, "shared_gate", model.shared_gate, true);
}

void set_mixture(nlohmann::ordered_json& json, const Model& m) {
  std::vector<int64_t> dense(static_cast<size_t>(m.dense_layers));
  std::iota(dense.begin(), dense.end(), 0);
  json["num_experts"] = m.experts;
  json["num_experts_per_tok"] = m.top_k;
  json["moe_intermediate_size"] = m.width_of_expert();
  json["norm_topk_prob"] = m.normalize_weights;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = dense;
  json["output_router_logits"] = false;
}

template <Qwen kWhich>
std::string format_qwen_config(const TransformersConfig& config, std::string_view dtype) {
  const Model& m = config.model;
  auto json = nlohmann::ordered_json::parse(format_llama_config(config, dtype));
  json["architectures"] = {kNamesOf[static_cast<size_t>(kWhich)].architecture};
  json["model_type"] = kNamesOf[static_cast<size_t>(kWhich)].type;
  json["use_sliding_window"] = false;
  json.erase("mlp_bias");
  if (!has_head_norms(kWhich)) json.erase("attention_bias");
  if (is_moe(kWhich)) set_mixture(json, m);
  if (kWhich == Qwen::k2Moe) {
    json["shared_expert_intermediate_size"] = m.shared_experts * m.width_of_expert();
    json["qkv_bias"] = m.qkv_bias;
  }
  return json.dump(2) + "\n";
}

// Returns the number of first layers without experts.
int64_t dense_layers_of(const ConfigFile& json) {
  const std::string has = "herd's moe has experts in all layers but the first ones",
                    fix = "a model whose layers without experts come first";
  if (const int64_t step = json.whole("decoder_sparse_step", 1); step != 1)
    json.refuse(Code::kBadConfig, "decoder_sparse_step", "is " + std::to_string(step) + ", " + has, fix);
  const Json* dense = json.find("mlp_only_layers");
  if (dense == nullptr) return 0;
  std::set<int64_t> layers;
  bool are_first = dense->is_array();
  for (const Json& layer : *dense)
    are_first = are_first && layer.is_number_integer() && layers.insert(layer.get<int64_t>()).second;
  int64_t next = 0;
  for (const int64_t layer : layers) are_first = are_first && layer == next++;
  if (!are_first) json.refuse(Code::kBadConfig, "mlp_only_layers", "is " + dense->dump() + ", " + has, fix);
  return next;
}

void parse_mixture(const ConfigFile& json, bool is_first, Model& m) {
  m.kind = "moe";
  m.experts =
      json.whole(json.find("num_experts") != nullptr ? "num_experts" : "num_local_experts", is_first ? 60 : 128);
  m.top_k = json.whole("num_experts_per_tok", is_first ? 4 : 8);
  m.expert_ffn = json.whole("moe_intermediate_size", is_first ? 1408 : 768);
  m.normalize_weights = json.flag("norm_topk_prob", false);
  m.dense_layers = dense_layers_of(json);
  if (!is_first) return;
  const int64_t shared = json.count("shared_expert_intermediate_size", 5632);
  if (shared % m.expert_ffn != 0)
    json.refuse(Code::kBadConfig, "shared_expert_intermediate_size",
                "is " + std::to_string(shared) +
                    ", but herd's shared experts are as wide as a number of experts, each " +
                    std::to_string(m.expert_ffn) + ": " + std::to_string(shared) + " % " +
                    std::to_string(m.expert_ffn) + " = " + std::to_string(shared % m.expert_ffn),
                "a model whose \"moe_intermediate_size\" divides it");
  m.shared_experts = shared / m.expert_ffn;
  m.shared_gate = shared > 0;
}

template <Qwen kWhich>
TransformersConfig parse_qwen_config(std::string_view text, const std::string& file) {
  const ConfigFile json(text, file);
  TransformersConfig config = parse_llama_members(json, json.flag("use_sliding_window", false));
  config.model.qkv_bias = kWhich == Qwen::k2 || (kWhich == Qwen::k2Moe && json.flag("qkv_bias", true));
  config.model.qk_norm = has_head_norms(kWhich);
  if (is_moe(kWhich)) parse_mixture(json, kWhich == Qwen::k2Moe, config.model);
  return config;
}

std::span<const std::pair<std::string_view, std::string_view>> qwen_members() {
  static const auto all = llama_members_and({{"model.experts", "num_local_experts"},
                                             {"model.experts", "num_experts"},
                                             {"model.top_k", "num_experts_per_tok"},
                                             {"model.expert_ffn", "moe_intermediate_size"},
                                             {"model.shared_experts", "shared_expert_intermediate_size"},
                                             {"model.dense_layers", "mlp_only_layers"}});
  return all;
}

template <Qwen kWhich>
TransformersFormat make_format() {
  const auto& [type, architecture, model] = kNamesOf[static_cast<size_t>(kWhich)];
  TransformersFormat format = llama_format();
  format.type = type;
  format.architecture = architecture;
  format.model = model;
  format.tensors = qwen_tensors;
  format.check_model = require_qwen<kWhich>;
  format.format_config = format_qwen_config<kWhich>;
  format.parse_config = parse_qwen_config<kWhich>;
  format.members = qwen_members();
  return format;
}

}  // namespace

const TransformersFormat& qwen_format(Qwen which) {
  static const TransformersFormat formats[] = {make_format<Qwen::k2>(), make_format<Qwen::k3>(),
                                               make_format<Qwen::k2Moe>(), make_format<Qwen::k3Moe>()};
  return formats[static_cast<size_t>(which)];
}

}  // namespace herd::convert
