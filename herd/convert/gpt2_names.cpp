#include "herd/convert/gpt2_names.h"

#include <nlohmann/json.hpp>

#include "herd/base/error.h"

namespace herd::convert {
namespace {

using Json = nlohmann::json;

constexpr double kEpsilon = 1e-5;
constexpr int64_t kPublishedEnd = 50256;  // begins and ends a text where config.json says nothing

constexpr struct {
  std::string_view herd, theirs;
} kLinear[] = {{".attn.qkv.", ".attn.c_attn."},
               {".attn.proj.", ".attn.c_proj."},
               {".mlp.up.", ".mlp.c_fc."},
               {".mlp.down.", ".mlp.c_proj."}};

// Members that change what the model computes, and the value that herd's has.
const Json& expected_members() {
  static const Json members = {{"layer_norm_epsilon", kEpsilon},
                               {"scale_attn_weights", true},
                               {"scale_attn_by_inverse_layer_idx", false},
                               {"add_cross_attention", false}};
  return members;
}

constexpr int64_t kMost = int64_t{1} << 40;  // of any size in a config; the run file's rules are tighter

// A whole number from `least` to kMost; `otherwise` where it is missing or null.
int64_t number_of(const Json& json, const char* name, const std::string& file, int64_t otherwise = 0,
                  int64_t least = 1) {
  const auto found = json.find(name);
  if ((found == json.end() || found->is_null()) && otherwise > 0) return otherwise;
  if (found == json.end() || !found->is_number_integer() || found->get<int64_t>() < least ||
      found->get<int64_t>() > kMost) {
    throw Error(Code::kCorruptFile, file + ": \"" + name + "\" must be a whole number from " + std::to_string(least) +
                                        " to 2^40" +
                                        "\n  fix: the config.json that save_pretrained() wrote beside the weights");
  }
  return found->get<int64_t>();
}

int64_t token_id(const Json& json, const char* name, const std::string& file) {
  if (json.is_number_integer() && json.get<int64_t>() >= 0) return json.get<int64_t>();
  throw Error(Code::kCorruptFile, file + ": \"" + name + "\" is " + json.dump() +
                                      ", but must be a token id of at least 0, a list of them, or null"
                                      "\n  fix: \"" +
                                      name + "\": null, or the ids of the tokenizer");
}

// A number, a list, or null for none; `otherwise` where the member is not there.
std::vector<int64_t> token_ids(const Json& json, const char* name, const std::string& file, const Json& otherwise) {
  const auto found = json.find(name);
  const Json& value = found == json.end() ? otherwise : *found;
  std::vector<int64_t> ids;
  if (value.is_null()) return ids;
  if (!value.is_array()) return {token_id(value, name, file)};
  for (const Json& one : value) ids.push_back(token_id(one, name, file));
  return ids;
}

TextEnds ends_of(const Json& json, const std::string& file, const Json& otherwise) {
  const std::vector<int64_t> begin = token_ids(json, "bos_token_id", file, otherwise);
  return {begin.empty() ? std::nullopt : std::optional(begin[0]), token_ids(json, "eos_token_id", file, otherwise)};
}

Json parse_object(std::string_view text, const std::string& file) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  throw Error(Code::kCorruptFile, file + ": not a JSON object\n  fix: take another copy of the file");
}

void check_type(const Json& json, const std::string& file) {
  const auto type = json.find("model_type");
  if (type != json.end() && *type == "gpt2") return;
  const auto built = json.find("architectures");
  throw Error(Code::kBadConfig,
              file + ": " +
                  (type == json.end() ? "it names no \"model_type\"" : "it is of a model of type " + type->dump()) +
                  (built == json.end() ? "" : " (" + built->dump() + ")") +
                  ", but herd reads \"gpt2\" alone\n  fix: the folder of a GPT-2, with the config.json that "
                  "save_pretrained() wrote");
}

void check_equations(const Json& json, const std::string& file) {
  check_type(json, file);
  for (const auto& [name, expected] : expected_members().items()) {
    const auto found = json.find(name);
    if (found == json.end() || *found == expected) continue;  // the default of the format is what herd has
    throw Error(Code::kBadConfig, file + ": \"" + name + "\" is " + found->dump() + ", herd's gpt has " +
                                      expected.dump() + "\n  fix: a model of GPT-2's kind");
  }
  const Json activation = json.value("activation_function", Json("gelu_new"));
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    throw Error(Code::kBadConfig, file + ": \"activation_function\" is " + activation.dump() +
                                      ", herd's gpt has \"gelu_new\"\n  fix: a model of GPT-2's kind");
  }
}

void set_ends(nlohmann::ordered_json& json, const TextEnds& ends) {
  const auto& [begin, end] = ends;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  if (begin) json["bos_token_id"] = *begin;
  if (end.size() == 1) json["eos_token_id"] = end[0];
  if (end.size() > 1) json["eos_token_id"] = end;
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

std::string format_gpt2_config(const Gpt2Config& config, std::string_view dtype) {
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
                                 {"layer_norm_epsilon", kEpsilon},
                                 {"scale_attn_weights", true},
                                 {"resid_pdrop", m.dropout},
                                 {"embd_pdrop", m.dropout},
                                 {"attn_pdrop", m.dropout},
                                 {"initializer_range", 0.02},
                                 {"tie_word_embeddings", m.tie_embeddings}};
  set_ends(json, config.ends);
  return json.dump(2) + "\n";
}

Gpt2Config parse_gpt2_config(std::string_view text, const std::string& file) {
  const Json json = parse_object(text, file);
  try {
    check_equations(json, file);
    Gpt2Config config;
    auto& m = config.model;
    m.layers = number_of(json, "n_layer", file);
    m.width = number_of(json, "n_embd", file);
    m.heads = number_of(json, "n_head", file);
    m.vocab = number_of(json, "vocab_size", file);
    m.context = number_of(json, "n_positions", file);
    m.ffn = number_of(json, "n_inner", file, 4 * m.width);
    m.tie_embeddings = json.value("tie_word_embeddings", true);
    m.dropout = json.value("resid_pdrop", 0.1);
    config.ends = ends_of(json, file, kPublishedEnd);
    return config;
  } catch (const Json::exception& error) {
    throw Error(Code::kCorruptFile, file + ": " + error.what() + "\n  fix: take another copy of the file");
  }
}

TextEnds parse_generation_config(std::string_view text, const std::string& file) {
  return ends_of(parse_object(text, file), file, nullptr);
}

std::string with_text_ends(const std::string& generation_config, const TextEnds& ends, const std::string& file) {
  if (parse_generation_config(generation_config, file) == ends) return generation_config;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(generation_config);
  set_ends(json, ends);
  return json.dump(2) + "\n";
}

}  // namespace herd::convert
