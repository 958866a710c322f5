#include "herd/convert/mixtral_names.h"

#include "herd/base/error.h"
#include "herd/convert/llama_names.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

constexpr std::pair<std::string_view, std::string_view> kExpertNames[] = {
    {"experts.gate.weight", "w1"}, {"experts.down.weight", "w2"}, {"experts.up.weight", "w3"}};

constexpr double kMixtralTheta = 1e6, kMixtralEps = 1e-5;  // of a config.json that does not state them

void require_mixtral(const spec::RunFile::Model& model) {
  const auto refuse = [](const std::string& key, const std::string& value, const std::string& has,
                         const std::string& fix) {
    throw Error(Code::kBadConfig, "Mixtral's format can't state this model: model." + key + " = " + value +
                                      ", but it has " + has + "\n  fix: " + fix);
  };
  if (!model.is_moe())
    refuse("kind", "\"" + model.kind + "\"", "\"moe\"", model.kind == "gpt" ? "--to gpt2" : "--to llama");
  if (model.router != "softmax") refuse("router", "\"" + model.router + "\"", "\"softmax\"", "--to herd");
  if (!model.normalize_weights) refuse("normalize_weights", "false", "true", "--to herd");
  if (model.shared_experts > 0) refuse("shared_experts", std::to_string(model.shared_experts), "0", "--to herd");
  if (model.bias_balancing > 0)
    refuse("bias_balancing", std::to_string(model.bias_balancing), "no biases of experts", "--to herd");
}

bool is_stated(const ConfigFile& config, std::string_view key) {
  for (const auto& [stated, member] : llama_format().members)
    if (stated == key && config.line_of(std::string(member)) > 0) return true;
  return false;
}

std::span<const std::pair<std::string_view, std::string_view>> mixtral_members() {
  static const std::vector<std::pair<std::string_view, std::string_view>> all = [] {
    std::vector<std::pair<std::string_view, std::string_view>> out(llama_format().members.begin(),
                                                                   llama_format().members.end());
    out.insert(out.end(), {{"model.experts", "num_local_experts"}, {"model.top_k", "num_experts_per_tok"}});
    return out;
  }();
  return all;
}

bool follows_from_config(std::string_view name) { return llama_format().is_derived(name); }

}  // namespace

std::vector<StoredTensor> mixtral_tensors(const Weight& weight, const spec::RunFile::Model& model) {
  const size_t dot = weight.name.starts_with("h.") ? weight.name.find('.', 2) : weight.name.npos;
  if (dot == weight.name.npos) return llama_tensors(weight, model);
  const std::string name = weight.name.substr(dot + 1);
  const std::string mixture = "layers." + weight.name.substr(2, dot - 1) + "block_sparse_moe.";
  if (name == "router.weight") return {{mixture + "gate.weight", weight.shape}};
  for (const auto& [mine, theirs] : kExpertNames) {
    if (name != mine) continue;
    std::vector<StoredTensor> out;
    for (int64_t e = 0; e < weight.shape[0]; ++e)
      out.push_back({mixture + "experts." + std::to_string(e) + "." + std::string(theirs) + ".weight",
                     {weight.shape[1], weight.shape[2]}});
    return out;
  }
  return llama_tensors(weight, model);
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
