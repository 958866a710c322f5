// Reads and writes how config.json states Llama's rotary positions. Versions of Hugging Face's transformers differ:
//   4   reads rope_theta and rope_scaling, and does not know rope_parameters
//   5   writes rope_parameters, which holds both. It takes rope_scaling in the place of rope_parameters where that is
//       stated, a rope_theta within before one outside, and original_max_position_embeddings outside before one within
// Where versions agree, so does herd. A file that they read differently is refused. rope_parameters without
// rope_scaling is read as version 5 does, the only one that knows it.   Threads: pure.
#pragma once

#include "herd/convert/config_file_internal.h"
#include "herd/spec/run_file.h"

namespace herd::convert {

// Sets the keys model.rope_* of `model`. Throws kBadConfig with members and values for other kinds of positions than
// herd has, and where versions differ; kCorruptFile where a number is missing.
void parse_positions(const ConfigFile& config, spec::RunFile::Model& model);

// Returns the value of "rope_scaling" of a model, which all versions read alike.
nlohmann::ordered_json rope_scaling_json(const spec::RunFile::Model& model);

}  // namespace herd::convert
