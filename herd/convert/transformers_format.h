// A kind of model as Hugging Face's transformers keeps it: a folder with config.json and *.safetensors. Reading and
// writing are the same for all kinds (transformers_folder.h); what differs is one TransformersFormat each, a table of
// names and the members of config.json (gpt2_names.h, llama_names.h). Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "herd/convert/text_ends.h"
#include "herd/convert/weight_source.h"
#include "herd/spec/run_file.h"

namespace herd::convert {

struct TransformersConfig {
  spec::RunFile::Model model = {};
  TextEnds ends = text_ends_of_herd();
};

struct TheirTensor {
  std::string name;            // without prefix
  std::vector<int64_t> shape;  // theirs
  bool transposed = false;     // with dimensions swapped; then it is the only one of its weight
};

struct TransformersFormat {
  std::string_view type;    // model_type of config.json
  std::string_view model;   // for messages
  std::string_view prefix;  // names in files may begin with it; written before all but the head's
  bool prefix_if_tied;      // written for models whose head is the embedding, too
  std::string_view embedding, head;
  // The tensors whose rows, one below the other, are those of a weight of herd.
  std::vector<TheirTensor> (*tensors)(const Weight& weight, const spec::RunFile::Model& model);
  bool (*is_derived)(std::string_view name);  // a tensor that follows from config.json
  // Throws kBadConfig naming the key, where the format can't state the model.
  void (*require)(const spec::RunFile::Model& model);
  std::string (*format_config)(const TransformersConfig& config, std::string_view dtype);
  TransformersConfig (*parse_config)(std::string_view text, const std::string& file);
};

// By the model_type of config.json. Throws kCorruptFile if that is no JSON object, kBadConfig for other types.
const TransformersFormat& transformers_format(std::string_view config, const std::string& file);

// generation_config.json, which transformers generates by in place of config.json where it is there.
TextEnds parse_generation_config(std::string_view text, const std::string& file);
// The same text where it names these ends already, else with them.
std::string with_text_ends(const std::string& generation_config, const TextEnds& ends, const std::string& file);

}  // namespace herd::convert
