#include "herd/convert/llama_names.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/convert/llama_positions_internal.h"
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
              {"attn.q_norm.weight", "self_attn.q_norm.weight"},
              {"attn.k_norm.weight", "self_attn.k_norm.weight"},
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

constexpr std::pair<std::string_view, std::string_view> kLlamaMembers[] = {
    {"model.layers", "num_hidden_layers"},
    {"model.width", "hidden_size"},
    {"model.heads", "num_attention_heads"},
    {"model.kv_heads", "num_key_value_heads"},
    {"model.head_width", "head_dim"},
    {"model.vocab", "vocab_size"},
    {"model.context", "max_position_embeddings"},
    {"model.ffn", "intermediate_size"},
    {"model.norm_eps", "rms_norm_eps"},
    {"model.dropout", "attention_dropout"},
    {"model.tie_embeddings", "tie_word_embeddings"},
    {"model.rope_theta", "rope_scaling.rope_theta"},
    {"model.rope_theta", "rope_theta"},
    {"model.rope_theta", "rope_parameters.rope_theta"},
    {"model.rope_factor", "rope_scaling.factor"},
    {"model.rope_factor", "rope_parameters.factor"},
    {"model.rope_low_freq_factor", "rope_scaling.low_freq_factor"},
    {"model.rope_low_freq_factor", "rope_parameters.low_freq_factor"},
    {"model.rope_high_freq_factor", "rope_scaling.high_freq_factor"},
    {"model.rope_high_freq_factor", "rope_parameters.high_freq_factor"},
    {"model.rope_original_context", "rope_scaling.original_max_position_embeddings"},
    {"model.rope_original_context", "rope_parameters.original_max_position_embeddings"},
    {"model.rope_original_context", "original_max_position_embeddings"}};

// Checks the members that change what the model computes. The value of herd's llama stands first, then others that mean
// the same.
void check_llama_equations(const ConfigFile& config, bool has_window) {
  const std::pair<const char*, std::vector<Json>> expected[] = {{"hidden_act", {"silu", "swish"}},
                                                                {"attention_bias", {false}},
                                                                {"mlp_bias", {false}},
                                                                {"sliding_window", {nullptr}},
                                                                {"use_sliding_window", {false}},
                                                                {"quantization_config", {nullptr}},
                                                                {"partial_rotary_factor", {1}},
                                                                {"dual_chunk_attention_config", {nullptr}}};
  for (const auto& [name, values] : expected) {
    const Json* value = config.find(name);
    if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) continue;
    if (name == std::string("sliding_window") && !has_window) continue;
    config.refuse(Code::kBadConfig, name,
                  "is " + value->dump() + ", herd's llama has " + (values[0].is_null() ? "none" : values[0].dump()),
                  "a model of Llama's kind");
  }
}

// A list of the kinds of layers' attention must name whole attention alone.
void check_layer_types(const ConfigFile& config) {
  const Json* types = config.find("layer_types");
  if (types == nullptr) return;
  for (const Json& type : *types) {
    if (type == "full_attention") continue;
    config.refuse(Code::kBadConfig, "layer_types",
                  "names " + type.dump() + ", herd's llama has \"full_attention\" alone", "a model of Llama's kind");
  }
}

void require_llama(const spec::RunFile::Model& model) {
  require_kind(model, "Llama", "llama");
  require_flag("Llama", "qk_norm", model.qk_norm, false);
  require_flag("Llama", "qkv_bias", model.qkv_bias, false);
}

}  // namespace

std::vector<StoredTensor> llama_tensors(const Weight& weight, const spec::RunFile::Model& model) {
  std::string name = weight.name, layer;
  if (name.starts_with("h.")) {
    const size_t dot = name.find('.', 2);
    layer = "layers." + name.substr(2, dot - 1);
    name = name.substr(dot + 1);
  }
  const bool is_bias = name == "attn.qkv.bias";
  if (name != "attn.qkv.weight" && !is_bias) return {{layer + their_name(name), weight.shape}};
  const int64_t kv_heads = model.kv_heads == 0 ? model.heads : model.kv_heads;
  const int64_t head_width = weight.shape[0] / (model.heads + 2 * kv_heads);
  const auto part = [&](const char* which, int64_t heads) {
    const std::string of = layer + "self_attn." + which + "_proj.";
    if (is_bias) return StoredTensor{of + "bias", {heads * head_width}};
    return StoredTensor{of + "weight", {heads * head_width, weight.columns()}};
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
  return parse_llama_members(ConfigFile(text, file), true);
}

TransformersConfig parse_llama_members(const ConfigFile& json, bool has_window) {
  check_llama_equations(json, has_window);
  check_layer_types(json);
  TransformersConfig config;
  auto& m = config.model;
  m.kind = "llama";
  m.norm = "rmsnorm";
  m.layers = json.whole("num_hidden_layers");
  m.width = json.whole("hidden_size");
  m.heads = json.whole("num_attention_heads");
  m.kv_heads = json.whole("num_key_value_heads", m.heads);
  if (json.find("head_dim") != nullptr) m.head_width = json.whole("head_dim");
  m.vocab = json.whole("vocab_size");
  m.context = json.whole("max_position_embeddings", 2048);
  m.ffn = json.whole("intermediate_size");
  m.norm_eps = json.real("rms_norm_eps", 1e-6);
  m.tie_embeddings = json.flag("tie_word_embeddings", false);
  m.dropout = json.real("attention_dropout", 0.0);
  parse_positions(json, m);
  config.ends = {ends_of(json, 1).begin, ends_of(json, 2).end};
  return config;
}

std::vector<std::pair<std::string_view, std::string_view>> llama_members_and(
    std::vector<std::pair<std::string_view, std::string_view>> more) {
  more.insert(more.begin(), std::begin(kLlamaMembers), std::end(kLlamaMembers));
  return more;
}

const TransformersFormat& llama_format() {
  static const TransformersFormat format{.type = "llama",
                                         .architecture = "Llama",
                                         .model = "Llama",
                                         .prefix = "model.",
                                         .prefix_when_tied = true,
                                         .embedding = "embed_tokens.weight",
                                         .head = "lm_head.weight",
                                         .tensors = llama_tensors,
                                         .is_derived = is_rotary_frequencies,
                                         .check_model = require_llama,
                                         .format_config = format_llama_config,
                                         .parse_config = parse_llama_config,
                                         .members = kLlamaMembers};
  return format;
}

}  // namespace herd::convert
