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

// Reads what models of Llama's kind have in common; `has_window` says whether sliding_window counts. Throws as
// parse_llama_config().
TransformersConfig parse_llama_members(const ConfigFile& json, bool has_window);
// Returns the members that state Llama's keys, and these.
std::vector<std::pair<std::string_view, std::string_view>> llama_members_and(
    std::vector<std::pair<std::string_view, std::string_view>> more);

// Throws kBadConfig: the format of `name` can't state model.`key` = `value`, since it has something else.
[[noreturn]] void refuse_model(const std::string& name, const std::string& key, const std::string& value,
                               const std::string& has, const std::string& fix);
// These throw it unless the model has what the format of `name` has.
void require_kind(const spec::RunFile::Model& model, const std::string& name, const std::string& kind);
void require_flag(const std::string& name, const std::string& key, bool value, bool has);
void require_softmax_router(const spec::RunFile::Model& model, const std::string& name);

}  // namespace herd::convert
