// Defines what config.json and generation_config.json of all kinds of models share, as JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "herd/convert/transformers_format.h"

namespace herd::convert {

using Json = nlohmann::json;

Json parse_object(std::string_view text, const std::string& file);  // throws kCorruptFile if it is none

// read(json); what it finds of another type than it asks for throws kCorruptFile.
TransformersConfig parse_config(std::string_view text, const std::string& file,
                                const std::function<TransformersConfig(const Json&)>& read);

// A whole number from `least` to 2^40; `otherwise` where it is missing or null. Throws kCorruptFile.
int64_t number_of(const Json& json, const char* name, const std::string& file, int64_t otherwise = 0,
                  int64_t least = 1);

// bos_token_id and eos_token_id; `otherwise` stands for one that is missing. Throws kCorruptFile.
TextEnds ends_of(const Json& json, const std::string& file, const Json& otherwise);
void set_ends(nlohmann::ordered_json& json, const TextEnds& ends);

}  // namespace herd::convert
