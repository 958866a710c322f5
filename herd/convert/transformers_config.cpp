#include "herd/base/error.h"
#include "herd/convert/gpt2_names.h"
#include "herd/convert/llama_names.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;  // the largest size in a config; the run file's rules are tighter

int64_t token_id(const Json& json, const char* name, const std::string& file) {
  if (json.is_number_integer() && json.get<int64_t>() >= 0) return json.get<int64_t>();
  throw Error(Code::kCorruptFile, file + ": \"" + name + "\" is " + json.dump() +
                                      ", but must be a token id of at least 0, a list of them, or null"
                                      "\n  fix: \"" +
                                      name + "\": null, or the ids of the tokenizer");
}

// Returns the ids of a member: a number, a list, or null for none. A missing member has the value `otherwise`.
std::vector<int64_t> token_ids(const Json& json, const char* name, const std::string& file, const Json& otherwise) {
  const auto found = json.find(name);
  const Json& value = found == json.end() ? otherwise : *found;
  std::vector<int64_t> ids;
  if (value.is_null()) return ids;
  if (!value.is_array()) return {token_id(value, name, file)};
  for (const Json& one : value) ids.push_back(token_id(one, name, file));
  return ids;
}

}  // namespace

Json parse_object(std::string_view text, const std::string& file) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  throw Error(Code::kCorruptFile, file + ": not a JSON object\n  fix: take another copy of the file");
}

int64_t number_of(const Json& json, const char* name, const std::string& file, int64_t otherwise, int64_t least) {
  const auto found = json.find(name);
  if ((found == json.end() || found->is_null()) && otherwise > 0) return otherwise;
  if (found == json.end() || !found->is_number_integer() || found->get<int64_t>() < least ||
      found->get<int64_t>() > kMaxSize) {
    throw Error(Code::kCorruptFile, file + ": \"" + name + "\" must be a whole number from " + std::to_string(least) +
                                        " to 2^40" +
                                        "\n  fix: the config.json that save_pretrained() wrote beside the weights");
  }
  return found->get<int64_t>();
}

TextEnds ends_of(const Json& json, const std::string& file, const Json& otherwise) {
  const std::vector<int64_t> begin = token_ids(json, "bos_token_id", file, otherwise);
  return {begin.empty() ? std::nullopt : std::optional(begin[0]), token_ids(json, "eos_token_id", file, otherwise)};
}

void set_ends(nlohmann::ordered_json& json, const TextEnds& ends) {
  const auto& [begin, end] = ends;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  if (begin) json["bos_token_id"] = *begin;
  if (end.size() == 1) json["eos_token_id"] = end[0];
  if (end.size() > 1) json["eos_token_id"] = end;
}

TransformersConfig parse_config(std::string_view text, const std::string& file,
                                const std::function<TransformersConfig(const Json&)>& read) {
  const Json json = parse_object(text, file);
  try {
    return read(json);
  } catch (const Json::exception& error) {
    throw Error(Code::kCorruptFile, file + ": " + error.what() + "\n  fix: take another copy of the file");
  }
}

const TransformersFormat& transformers_format(std::string_view config, const std::string& file) {
  const Json json = parse_object(config, file);
  const auto type = json.find("model_type"), architectures = json.find("architectures");
  for (const TransformersFormat* format : {&gpt2_format(), &llama_format()}) {
    if (type != json.end() && *type == format->type) return *format;
  }
  throw Error(Code::kBadConfig,
              file + ": " +
                  (type == json.end() ? "it names no \"model_type\"" : "it is of a model of type " + type->dump()) +
                  (architectures == json.end() ? "" : " (" + architectures->dump() + ")") +
                  ", but herd reads \"gpt2\" and \"llama\" alone\n  fix: the folder of a GPT-2 or a Llama, with the "
                  "config.json that save_pretrained() wrote");
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
