// Reads and writes what config.json and generation_config.json have in common for all kinds of models. Threads: pure.
#pragma once

#include <nlohmann/json.hpp>

#include "herd/convert/config_file_internal.h"
#include "herd/convert/transformers_format.h"

namespace herd::convert {

// Returns bos_token_id and eos_token_id: null, a token id, or a list of ids. `otherwise` stands for a member that is
// missing. Throws kCorruptFile for other values.
TextEnds ends_of(const ConfigFile& config, const Json& otherwise);
// Sets both members, to null where the text has no such end.
void set_ends(nlohmann::ordered_json& json, const TextEnds& ends);

}  // namespace herd::convert
