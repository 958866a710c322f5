#include "herd/convert/gpt2_names.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

constexpr int64_t kPublishedEnd = 50256;  // the id that begins and ends a text if config.json names none

constexpr struct {
  std::string_view herd, theirs;
} kLinear[] = {{".attn.qkv.", ".attn.c_attn."},
               {".attn.proj.", ".attn.c_proj."},
               {".mlp.up.", ".mlp.c_fc."},
               {".mlp.down.", ".mlp.c_proj."}};

constexpr std::pair<std::string_view, std::string_view> kGpt2Members[] = {
    {"model.layers", "n_layer"},
    {"model.width", "n_embd"},
    {"model.heads", "n_head"},
    {"model.vocab", "vocab_size"},
    {"model.context", "n_positions"},
    {"model.ffn", "n_inner"},
    {"model.norm_eps", "layer_norm_epsilon"},
    {"model.dropout", "resid_pdrop"},
    {"model.tie_embeddings", "tie_word_embeddings"}};

[[noreturn]] void refuse_member(const ConfigFile& config, const char* name, const std::string& value,
                                const std::string& expected) {
  config.refuse(Code::kBadConfig, name, "is " + value + ", herd's gpt has " + expected, "a model of GPT-2's kind");
}

// Checks the members of config.json that change what the model computes.
void check_gpt2_equations(const ConfigFile& config) {
  const std::pair<const char*, bool> flags[] = {
      {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}};
  for (const auto& [name, expected] : flags) {
    const Json* value = config.find(name);
    if (value != nullptr && *value != expected) refuse_member(config, name, value->dump(), expected ? "true" : "false");
  }
  // Python takes null for false, where these are true by default.
  for (const char* name : {"scale_attn_weights", "tie_word_embeddings"}) {
    if (config.find(name) != nullptr || config.line_of(name) == 0) continue;
    config.refuse(Code::kBadConfig, name, "is null, which transformers 4 takes for false and transformers 5 refuses",
                  "true or false, as the weights were trained");
  }
  const Json* activation = config.find("activation_function");
  if (activation != nullptr && *activation != "gelu_new" && *activation != "gelu_pytorch_tanh")
    refuse_member(config, "activation_function", activation->dump(), "\"gelu_new\"");
}

}  // namespace

Gpt2Name gpt2_name(std::string_view herd_name) {
  std::string name(herd_name);
  if (name == "head.weight") return {"lm_head.weight"};
  for (const auto& [herd, theirs] : kLinear) {
    const size_t at = name.find(herd);
    if (at == name.npos) continue;
    name.replace(at, herd.size(), theirs);
    return {name, name.ends_with(".weight")};
  }
  return {name};
}

void require_gpt2(const spec::RunFile::Model& model) {
  const auto refuse = [](const std::string& key, const std::string& value, const std::string& allowed) {
    throw Error(Code::kBadConfig, "GPT-2's format can't state this model: " + key + " = " + value + ", but it has " +
                                      allowed + "\n  fix: --to herd keeps the weights as they are named here");
  };
  if (model.kind != "gpt") refuse("model.kind", "\"" + model.kind + "\"", "\"gpt\"");
  if (model.norm != "layernorm") refuse("model.norm", "\"" + model.norm + "\"", "\"layernorm\"");
  if (model.kv_heads != 0 && model.kv_heads != model.heads)
    refuse("model.kv_heads", std::to_string(model.kv_heads), "as many as heads (" + std::to_string(model.heads) + ")");
  if (model.head_width != 0 && model.head_width * model.heads != model.width)
    refuse("model.head_width", std::to_string(model.head_width), "width / heads");
}

std::string format_gpt2_config(const TransformersConfig& config, std::string_view dtype) {
  const auto& m = config.model;
  nlohmann::ordered_json json = {{"architectures", {"GPT2LMHeadModel"}},
                                 {"model_type", "gpt2"},
                                 {"torch_dtype", dtype},
                                 {"vocab_size", m.vocab},
                                 {"n_positions", m.context},
                                 {"n_ctx", m.context},
                                 {"n_embd", m.width},
                                 {"n_layer", m.layers},
                                 {"n_head", m.heads},
                                 {"n_inner", m.ffn == 0 ? 4 * m.width : m.ffn},
                                 {"activation_function", "gelu_new"},
                                 {"layer_norm_epsilon", m.norm_eps},
                                 {"scale_attn_weights", true},
                                 {"resid_pdrop", m.dropout},
                                 {"embd_pdrop", m.dropout},
                                 {"attn_pdrop", m.dropout},
                                 {"initializer_range", 0.02},
                                 {"tie_word_embeddings", m.tie_embeddings}};
  set_ends(json, config.ends);
  return json.dump(2) + "\n";
}

TransformersConfig parse_gpt2_config(std::string_view text, const std::string& file) {
  const ConfigFile json(text, file);
  check_gpt2_equations(json);
  TransformersConfig config;
  auto& m = config.model;
  m.layers = json.whole("n_layer");
  m.width = json.whole("n_embd");
  m.heads = json.whole("n_head");
  m.vocab = json.whole("vocab_size");
  m.context = json.whole("n_positions");
  m.ffn = json.whole("n_inner", 4 * m.width);
  m.tie_embeddings = json.flag("tie_word_embeddings", true);
  m.norm_eps = json.real("layer_norm_epsilon", 1e-5);
  m.dropout = json.real("resid_pdrop", 0.1);
  config.ends = ends_of(json, kPublishedEnd);
  return config;
}

namespace {

std::vector<StoredTensor> gpt2_tensors(const Weight& weight, const spec::RunFile::Model&) {
  const Gpt2Name theirs = gpt2_name(weight.name);
  std::vector<int64_t> shape = weight.shape;
  if (theirs.transposed) std::reverse(shape.begin(), shape.end());
  return {{theirs.name, shape, theirs.transposed}};
}

bool is_causal_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

const TransformersFormat& gpt2_format() {
  static const TransformersFormat format{.type = "gpt2",
                                         .architecture = "GPT2",
                                         .model = "GPT-2",
                                         .prefix = "transformer.",
                                         .prefix_when_tied = false,  // as the published files
                                         .embedding = "wte.weight",
                                         .head = "lm_head.weight",
                                         .tensors = gpt2_tensors,
                                         .is_derived = is_causal_mask,
                                         .check_model = require_gpt2,
                                         .format_config = format_gpt2_config,
                                         .parse_config = parse_gpt2_config,
                                         .members = kGpt2Members};
  return format;
}

}  // namespace herd::convert
