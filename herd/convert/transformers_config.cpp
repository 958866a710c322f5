#include <algorithm>
#include <cctype>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/convert/bert_names.h"
#include "herd/convert/deepseek_names.h"
#include "herd/convert/gpt2_names.h"
#include "herd/convert/llama_names.h"
#include "herd/convert/mixtral_names.h"
#include "herd/convert/qwen_names.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

int64_t token_id(const Json& json, const char* name, const ConfigFile& config) {
  if (json.is_number_integer() && json.get<int64_t>() >= 0) return json.get<int64_t>();
  config.refuse(Code::kCorruptFile, name,
                "is " + json.dump() + ", but must be a token id of at least 0, a list of them, or null",
                "\"" + std::string(name) + "\": null, or the ids of the tokenizer");
}

// Returns the ids of a member: a number, a list, or null for none. A missing member has the value `otherwise`.
std::vector<int64_t> token_ids(const ConfigFile& config, const char* name, const Json& otherwise) {
  const auto found = config.json().find(name);
  const Json& value = found == config.json().end() ? otherwise : *found;
  std::vector<int64_t> ids;
  if (value.is_null()) return ids;
  if (!value.is_array()) return {token_id(value, name, config)};
  for (const Json& one : value) ids.push_back(token_id(one, name, config));
  return ids;
}

// Returns the member of config.json that states a key: the first of the format's that the file has, else the last.
std::string member_of(std::string_view key, const TransformersFormat& format, const ConfigFile& config) {
  std::string member;
  for (const auto& [stated_key, name] : format.members) {
    if (stated_key != key) continue;
    member = name;
    if (config.line_of(member) > 0) break;
  }
  return member;
}

// Puts members of config.json, with their lines, in the place of a run file's keys.
std::string in_members(std::string text, const TransformersFormat& format, const ConfigFile& config) {
  if (const size_t place = text.find(" (" + printable(config.name()) + ", line "); place < text.find('\n'))
    text.erase(place, text.find("): ", place) + 2 - place);
  const auto continues_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find("model."); at != text.npos; at = text.find("model.", at)) {
    size_t end = at + 6;
    while (end < text.size() && continues_name(text[end])) ++end;
    const std::string member = member_of(text.substr(at, end - at), format, config);
    if (!member.empty()) {
      const int line = at < text.find('\n') ? config.line_of(member) : 0;  // the fix needs no line
      text.replace(at, end - at, "\"" + member + "\"" + (line > 0 ? " (line " + std::to_string(line) + ")" : ""));
    }
    at += std::max<size_t>(6, member.size());
  }
  return text;
}

}  // namespace

TextEnds ends_of(const ConfigFile& config, const Json& otherwise) {
  const std::vector<int64_t> begin = token_ids(config, "bos_token_id", otherwise);
  return {begin.empty() ? std::nullopt : std::optional(begin[0]), token_ids(config, "eos_token_id", otherwise)};
}

void set_ends(nlohmann::ordered_json& json, const TextEnds& ends) {
  const auto& [begin, end] = ends;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  if (begin) json["bos_token_id"] = *begin;
  if (end.size() == 1) json["eos_token_id"] = end[0];
  if (end.size() > 1) json["eos_token_id"] = end;
}

void refuse_model(const std::string& name, const std::string& key, const std::string& value, const std::string& has,
                  const std::string& fix) {
  throw Error(Code::kBadConfig, name + "'s format can't state this model: model." + key + " = " + value +
                                    ", but it has " + has + "\n  fix: " + fix);
}

void require_kind(const spec::RunFile::Model& model, const std::string& name, const std::string& kind) {
  if (model.kind == kind) return;
  const std::string fix = model.kind == "gpt"     ? "--to gpt2"
                          : model.kind == "llama" ? "--to llama"
                          : model.kind == "moe"   ? "--to mixtral"
                          : model.kind == "bert"  ? "--to bert"
                                                  : "--to herd";
  refuse_model(name, "kind", "\"" + model.kind + "\"", "\"" + kind + "\"", fix);
}

void require_flag(const std::string& name, const std::string& key, bool value, bool has) {
  const std::string other = key == "qk_norm"       ? "--to qwen3 or qwen3_moe"
                            : key == "qkv_bias"    ? "--to qwen2 or qwen2_moe"
                            : key == "shared_gate" ? "--to qwen2_moe"
                                                   : "--to qwen3_moe";
  if (value != has)
    refuse_model(name, key, value ? "true" : "false", has ? "true" : "false", value && !has ? other : "--to herd");
}

void require_softmax_router(const spec::RunFile::Model& model, const std::string& name) {
  if (model.router != "softmax") refuse_model(name, "router", "\"" + model.router + "\"", "\"softmax\"", "--to herd");
  if (model.bias_balancing > 0)
    refuse_model(name, "bias_balancing", std::to_string(model.bias_balancing), "no biases of experts", "--to herd");
}

spec::RunFile run_of_config(const TransformersConfig& stated, const TransformersFormat& format, std::string_view text,
                            const std::string& file) {
  spec::RunFile run;
  run.model = stated.model;
  try {
    return spec::parse_run_text(spec::to_toml(run), file);
  } catch (const Error& error) {
    throw Error(error.code(), file + ": " + in_members(error.message(), format, ConfigFile(text, file)));
  }
}

namespace {

// Checks that the classes which config.json names, where it does, are of the model that it states.
void check_architectures(const ConfigFile& config, const TransformersFormat& format) {
  const Json* architectures = config.find("architectures");
  if (architectures == nullptr) return;
  bool found = false;
  for (const Json& name : *architectures)
    found |= name.is_string() && name.get<std::string>().starts_with(format.architecture);
  if (found && architectures->is_array()) return;
  config.refuse(Code::kBadConfig, "architectures",
                "is " + architectures->dump() + ", but \"model_type\" (line " +
                    std::to_string(config.line_of("model_type")) + ") is \"" + std::string(format.type) +
                    "\", whose classes begin with " + std::string(format.architecture),
                "the config.json that belongs to these weights");
}

}  // namespace

std::vector<const TransformersFormat*> transformers_formats() {
  return {&gpt2_format(),         &llama_format(),           &mixtral_format(),         &qwen_format(Qwen::k2),
          &qwen_format(Qwen::k3), &qwen_format(Qwen::k2Moe), &qwen_format(Qwen::k3Moe), &deepseek_format(),
          &bert_format()};
}

const TransformersFormat& transformers_format(std::string_view config, const std::string& file) {
  const ConfigFile parsed(config, file);
  if (parsed.line_of("model_type") > 0 && parsed.find("model_type") == nullptr)
    parsed.refuse(Code::kBadConfig, "model_type", "is null, but names the kind of the model",
                  "the config.json that save_pretrained() wrote beside the weights");
  const Json& json = parsed.json();
  const auto type = json.find("model_type"), architectures = json.find("architectures");
  std::string known;
  for (const TransformersFormat* format : transformers_formats()) {
    known += (known.empty() ? "\"" : ", \"") + std::string(format->type) + "\"";
    if (type == json.end() || *type != format->type) continue;
    check_architectures(parsed, *format);
    return *format;
  }
  if (type != json.end() && (*type == "deepseek_v2" || *type == "deepseek_v3"))
    parsed.refuse(
        Code::kBadConfig, "model_type",
        "is " + type->dump() +
            ", whose attention is latent (MLA): keys and values are made of a narrower tensor, which no model of "
            "herd's does",
        "a DeepSeek-MoE of model_type \"deepseek\", or another mixture of experts: " + known);
  throw Error(
      Code::kBadConfig,
      file + ": " + (type == json.end() ? "it names no \"model_type\"" : "it is of a model of type " + type->dump()) +
          (architectures == json.end() ? "" : " (" + architectures->dump() + ")") + ", but herd reads " + known +
          " alone\n  fix: the folder of such a model, with the config.json that "
          "save_pretrained() wrote");
}

TextEnds parse_generation_config(std::string_view text, const std::string& file) {
  return ends_of(ConfigFile(text, file), nullptr);
}

std::string with_text_ends(const std::string& generation_config, const TextEnds& ends, const std::string& file) {
  if (parse_generation_config(generation_config, file) == ends) return generation_config;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(generation_config);
  set_ends(json, ends);
  return json.dump(2) + "\n";
}

}  // namespace herd::convert
