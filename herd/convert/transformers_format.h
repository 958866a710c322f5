// Defines what differs between the kinds of models that Hugging Face's transformers stores: the names of tensors and
// the members of config.json (gpt2_names.h, llama_names.h and others). Reading and writing are the same for all kinds
// (transformers_folder.h).   Threads: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "herd/convert/text_ends.h"
#include "herd/convert/weight_source.h"
#include "herd/spec/run_file.h"

namespace herd::convert {

struct TransformersConfig {
  spec::RunFile::Model model = {};
  TextEnds ends = default_text_ends();
};

struct StoredTensor {
  std::string name;            // without prefix
  std::vector<int64_t> shape;  // as transformers stores it
  bool transposed = false;     // its dimensions are swapped; then it is the only tensor of its weight
  // Some files hold it by this name. Where a file has both, they must be equal.
  std::string other_name = {};
  // Both are written, and where a file has both, they may differ, and the first counts. Of the only tensor of its
  // weight.
  bool stored_twice = false;
};

struct TransformersFormat {
  std::string_view type;                             // model_type of config.json
  std::string_view architecture;                     // architectures of config.json name a class that begins with it
  std::string_view model;                            // name of the model in messages
  std::string_view loader = "AutoModelForCausalLM";  // the class of transformers that reads it, in messages
  std::string_view prefix;           // names in files may begin with it; it is written before all names but the head's
  bool prefix_when_tied;             // true: names have the prefix in files of tied models, too
  std::string_view embedding, head;  // names of these two tensors, without prefix
  // Returns the tensors whose rows, one below the other, are those of a weight of herd.
  std::vector<StoredTensor> (*tensors)(const Weight& weight, const spec::RunFile::Model& model);
  bool (*is_derived)(std::string_view name);  // tells whether the tensor follows from config.json
  // Tells whether the tensor is of a part that herd's model does not have; none if null.
  bool (*is_left_out)(std::string_view name) = nullptr;
  // Throws kBadConfig with the key where the format cannot state the model.
  void (*check_model)(const spec::RunFile::Model& model);
  std::string (*format_config)(const TransformersConfig& config, std::string_view dtype);
  TransformersConfig (*parse_config)(std::string_view text, const std::string& file);
  // Lists keys of a run file's [model] with the member of config.json that states each; of several the first that the
  // file has.
  std::span<const std::pair<std::string_view, std::string_view>> members;
};

std::vector<const TransformersFormat*> transformers_formats();  // returns all

// Returns the format for the model_type of config.json, whose text is `config`. Throws kCorruptFile if that is no JSON
// object, kBadConfig for a type without a format: deepseek_v2 and deepseek_v3 have another attention.
const TransformersFormat& transformers_format(std::string_view config, const std::string& file);

// Returns the run file of the model that config.json states, with what it leaves open filled in. `text` is that of
// config.json. Throws kBadConfig where the model breaks a rule of the run file, with the members and their lines.
spec::RunFile run_of_config(const TransformersConfig& stated, const TransformersFormat& format, std::string_view text,
                            const std::string& file);

// Reads generation_config.json; where it exists, transformers generates by it and not by config.json.
TextEnds parse_generation_config(std::string_view text, const std::string& file);
// Returns the text of a generation_config.json that names these ends: the same text where it does already.
std::string with_text_ends(const std::string& generation_config, const TextEnds& ends, const std::string& file);

}  // namespace herd::convert
