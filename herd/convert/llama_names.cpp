#include "herd/convert/llama_names.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

constexpr struct {
  std::string_view herd, theirs;
} kNames[] = {{"wte.weight", "embed_tokens.weight"},
              {"ln_f.weight", "norm.weight"},
              {"head.weight", "lm_head.weight"},
              {"ln_1.weight", "input_layernorm.weight"},
              {"attn.proj.weight", "self_attn.o_proj.weight"},
              {"ln_2.weight", "post_attention_layernorm.weight"},
              {"mlp.gate.weight", "mlp.gate_proj.weight"},
              {"mlp.up.weight", "mlp.up_proj.weight"},
              {"mlp.down.weight", "mlp.down_proj.weight"}};

std::string their_name(std::string_view herd) {
  for (const auto& [mine, theirs] : kNames) {
    if (herd == mine) return std::string(theirs);
  }
  return std::string(herd);
}

bool is_rotary_frequencies(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

[[noreturn]] void refuse(const std::string& file, const std::string& name, const Json& value, const std::string& have) {
  throw Error(Code::kBadConfig, file + ": \"" + name + "\" is " + value.dump() + ", herd's llama has " + have +
                                    "\n  fix: a model of Llama's kind");
}

// Checks the members that change what the model computes. The value of herd's llama stands first, then others that mean
// the same.
void check_equations(const Json& json, const std::string& file) {
  const std::pair<const char*, std::vector<Json>> expected[] = {{"hidden_act", {"silu", "swish"}},
                                                                {"attention_bias", {false, nullptr}},
                                                                {"mlp_bias", {false, nullptr}},
                                                                {"sliding_window", {nullptr}},
                                                                {"use_sliding_window", {false}},
                                                                {"quantization_config", {nullptr}},
                                                                {"partial_rotary_factor", {1, 1.0, nullptr}}};
  for (const auto& [name, values] : expected) {
    const auto found = json.find(name);
    if (found == json.end() || std::find(values.begin(), values.end(), *found) != values.end()) continue;
    refuse(file, name, *found, values[0].is_null() ? "none" : values[0].dump());
  }
}

void parse_positions(const Json& json, const std::string& file, spec::RunFile::Model& m) {
  const auto newer = json.find("rope_parameters"), older = json.find("rope_scaling");
  const bool is_new = newer != json.end() && !newer->is_null();
  const std::string member = is_new ? "rope_parameters" : "rope_scaling";
  const Json rope = is_new ? *newer : older != json.end() && !older->is_null() ? *older : Json::object();
  m.rope_theta = rope.value("rope_theta", json.value("rope_theta", 10000.0));
  const Json type = rope.value("rope_type", rope.value("type", Json("default")));
  if (rope.contains("partial_rotary_factor") && rope["partial_rotary_factor"] != 1)
    refuse(file, member + ".partial_rotary_factor", rope["partial_rotary_factor"], "1");
  if (type == "default") return;
  if (type != "linear" && type != "llama3")
    refuse(file, member + ".rope_type", type, "\"default\", \"linear\" and \"llama3\"");
  m.rope_scaling = type;
  m.rope_factor = rope.at("factor");
  if (type == "linear") return;
  m.rope_low_freq_factor = rope.at("low_freq_factor");
  m.rope_high_freq_factor = rope.at("high_freq_factor");
  m.rope_original_context = number_of(rope, "original_max_position_embeddings", file);
}

nlohmann::ordered_json rope_scaling_json(const spec::RunFile::Model& m) {
  if (m.rope_scaling == "none") return nullptr;
  nlohmann::ordered_json rope = {{"rope_type", m.rope_scaling}, {"factor", m.rope_factor}};
  if (m.rope_scaling != "llama3") return rope;
  rope["low_freq_factor"] = m.rope_low_freq_factor;
  rope["high_freq_factor"] = m.rope_high_freq_factor;
  rope["original_max_position_embeddings"] = m.rope_original_context;
  return rope;
}

void require_llama(const spec::RunFile::Model& model) {
  if (model.kind == "llama") return;
  throw Error(Code::kBadConfig,
              "Llama's format can't state this model: model.kind = \"" + model.kind +
                  "\", but it has \"llama\"\n  fix: " + (model.kind == "gpt" ? "--to gpt2" : "--to herd"));
}

}  // namespace

std::vector<StoredTensor> llama_tensors(const Weight& weight, const spec::RunFile::Model& model) {
  std::string name = weight.name, layer;
  if (name.starts_with("h.")) {
    const size_t dot = name.find('.', 2);
    layer = "layers." + name.substr(2, dot - 1);
    name = name.substr(dot + 1);
  }
  if (name != "attn.qkv.weight") return {{layer + their_name(name), weight.shape}};
  const int64_t kv_heads = model.kv_heads == 0 ? model.heads : model.kv_heads;
  const int64_t head_width = weight.rows() / (model.heads + 2 * kv_heads);
  const auto part = [&](const char* which, int64_t heads) {
    return StoredTensor{layer + "self_attn." + which + "_proj.weight", {heads * head_width, weight.columns()}};
  };
  return {part("q", model.heads), part("k", kv_heads), part("v", kv_heads)};
}

std::string format_llama_config(const TransformersConfig& config, std::string_view dtype) {
  const auto& m = config.model;
  const int64_t kv_heads = m.kv_heads == 0 ? m.heads : m.kv_heads;
  nlohmann::ordered_json json = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"torch_dtype", dtype},
                                 {"vocab_size", m.vocab},
                                 {"max_position_embeddings", m.context},
                                 {"hidden_size", m.width},
                                 {"num_hidden_layers", m.layers},
                                 {"num_attention_heads", m.heads},
                                 {"num_key_value_heads", kv_heads},
                                 {"head_dim", m.head_width == 0 ? m.width / m.heads : m.head_width},
                                 {"intermediate_size", m.ffn == 0 ? 4 * m.width : m.ffn},
                                 {"hidden_act", "silu"},
                                 {"rms_norm_eps", m.norm_eps},
                                 {"rope_theta", m.rope_theta},
                                 {"rope_scaling", rope_scaling_json(m)},
                                 {"attention_bias", false},
                                 {"mlp_bias", false},
                                 {"attention_dropout", m.dropout},
                                 {"initializer_range", 0.02},
                                 {"tie_word_embeddings", m.tie_embeddings}};
  set_ends(json, config.ends);
  return json.dump(2) + "\n";
}

TransformersConfig parse_llama_config(std::string_view text, const std::string& file) {
  return parse_config(text, file, [&](const Json& json) {
    check_equations(json, file);
    TransformersConfig config;
    auto& m = config.model;
    m.kind = "llama";
    m.norm = "rmsnorm";
    m.layers = number_of(json, "num_hidden_layers", file);
    m.width = number_of(json, "hidden_size", file);
    m.heads = number_of(json, "num_attention_heads", file);
    m.kv_heads = number_of(json, "num_key_value_heads", file, m.heads);
    if (json.contains("head_dim") && !json["head_dim"].is_null()) m.head_width = number_of(json, "head_dim", file);
    m.vocab = number_of(json, "vocab_size", file);
    m.context = number_of(json, "max_position_embeddings", file, 2048);
    m.ffn = number_of(json, "intermediate_size", file);
    m.norm_eps = json.value("rms_norm_eps", 1e-6);
    m.tie_embeddings = json.value("tie_word_embeddings", false);
    m.dropout = json.value("attention_dropout", 0.0);
    parse_positions(json, file, m);
    config.ends = {ends_of(json, file, 1).begin, ends_of(json, file, 2).end};
    return config;
  });
}

const TransformersFormat& llama_format() {
  static const TransformersFormat format{.type = "llama",
                                         .model = "Llama",
                                         .prefix = "model.",
                                         .prefix_when_tied = true,
                                         .embedding = "embed_tokens.weight",
                                         .head = "lm_head.weight",
                                         .tensors = llama_tensors,
                                         .is_derived = is_rotary_frequencies,
                                         .check_model = require_llama,
                                         .format_config = format_llama_config,
                                         .parse_config = parse_llama_config};
  return format;
}

}  // namespace herd::convert
