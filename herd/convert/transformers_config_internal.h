// Reads and writes what config.json and generation_config.json have in common for all kinds of models. Threads: pure.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "herd/convert/transformers_format.h"

namespace herd::convert {

using Json = nlohmann::json;

// Returns the JSON object that the text is. Throws kCorruptFile if it is none; errors name `file`.
Json parse_object(std::string_view text, const std::string& file);

// Parses the text and returns read(json). Throws kCorruptFile where a member has another type than `read` asks for.
TransformersConfig parse_config(std::string_view text, const std::string& file,
                                const std::function<TransformersConfig(const Json&)>& read);

// Returns the member `name`, a whole number in [least, 2^40]; `otherwise` where that is positive and the member missing
// or null. Throws kCorruptFile for anything else.
int64_t number_of(const Json& json, const char* name, const std::string& file, int64_t otherwise = 0,
                  int64_t least = 1);

// Returns bos_token_id and eos_token_id: null, a token id, or a list of ids. `otherwise` stands for a member that is
// missing. Throws kCorruptFile for other values.
TextEnds ends_of(const Json& json, const std::string& file, const Json& otherwise);
// Sets both members, to null where the text has no such end.
void set_ends(nlohmann::ordered_json& json, const TextEnds& ends);

}  // namespace herd::convert
