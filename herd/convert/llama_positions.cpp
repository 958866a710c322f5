#include "herd/convert/llama_positions_internal.h"

namespace herd::convert {
namespace {

constexpr char kTheta[] = "rope_theta", kOriginal[] = "original_max_position_embeddings";
constexpr double kDefaultTheta = 10000;

// Refuses a file in which two members state one thing, and versions of transformers differ in which counts.
[[noreturn]] void refuse_conflict(const ConfigFile& config, const std::string& member, const std::string& other,
                                  const std::string& other_value, const std::string& versions) {
  config.refuse(Code::kBadConfig, member,
                "is " + config.find(member)->dump() + ", but \"" + other + "\" is " + other_value + ": " + versions,
                "state in both what the weights were trained with");
}

// Returns the object that states the positions, if it states any: rope_scaling counts in all versions.
std::string member_of_positions(const ConfigFile& config) {
  for (const std::string name : {"rope_scaling", "rope_parameters"}) {
    const Json* value = config.find(name);
    if (value == nullptr || value->empty()) continue;
    if (!value->is_object())
      config.refuse(Code::kCorruptFile, name, "is " + value->dump() + ", but must be an object or null",
                    "the config.json that save_pretrained() wrote beside the weights");
    return name;
  }
  return "";
}

double theta_of(const ConfigFile& config, const std::string& rope) {
  const std::string inside = rope + "." + kTheta;
  const double outer = config.real(kTheta, kDefaultTheta);
  if (rope.empty() || config.find(inside) == nullptr) return outer;
  const double inner = config.real(inside);
  const bool is_outer_stated = config.find(kTheta) != nullptr;
  if (inner == outer || (rope == "rope_parameters" && !is_outer_stated)) return inner;
  refuse_conflict(config, inside, kTheta,
                  is_outer_stated ? config.find(kTheta)->dump() : "not stated, which is 10000.0",
                  "transformers 5 takes the first, transformers 4 the second");
}

std::string type_of(const ConfigFile& config, const std::string& rope) {
  const std::string newer = rope + ".rope_type", older = rope + ".type";
  const Json *type = config.find(newer), *old_type = config.find(older);
  if (type != nullptr && old_type != nullptr && *type != *old_type)
    refuse_conflict(config, newer, older, old_type->dump(),
                    "transformers 5 takes the first, transformers 4 the second");
  const std::string& member = type != nullptr || old_type == nullptr ? newer : older;
  if (type == nullptr) type = old_type;
  if (type == nullptr) {
    if (config.find(rope + ".factor") == nullptr) return "default";
    config.refuse(Code::kBadConfig, newer,
                  "is not stated, but \"" + rope + ".factor\" is " + config.find(rope + ".factor")->dump() +
                      ": transformers 5 takes \"default\" and no factor, transformers 4 refuses the file",
                  "\"rope_type\": \"linear\", or the type that the weights were trained with");
  }
  for (const char* known : {"default", "linear", "llama3"}) {
    if (*type == known) return known;
  }
  config.refuse(Code::kBadConfig, member,
                "is " + type->dump() + ", herd's llama has \"default\", \"linear\" and \"llama3\"",
                "a model of Llama's kind");
}

int64_t original_context(const ConfigFile& config, const std::string& rope) {
  const std::string inside = rope + "." + kOriginal;
  const Json *inner = config.find(inside), *outer = config.find(kOriginal);
  if (inner != nullptr && outer != nullptr && *inner != *outer)
    refuse_conflict(config, inside, kOriginal, outer->dump(),
                    "transformers 4 takes the first, transformers 5 the second");
  return config.whole(inner == nullptr && outer != nullptr ? kOriginal : inside);
}

}  // namespace

void parse_positions(const ConfigFile& config, spec::RunFile::Model& m) {
  const std::string rope = member_of_positions(config);
  m.rope_theta = theta_of(config, rope);
  if (rope.empty()) return;
  const std::string partial = rope + ".partial_rotary_factor";
  if (const Json* value = config.find(partial); value != nullptr && *value != 1)
    config.refuse(Code::kBadConfig, partial, "is " + value->dump() + ", herd's llama has 1", "a model of Llama's kind");
  const std::string type = type_of(config, rope);
  if (type == "default") return;
  m.rope_scaling = type;
  m.rope_factor = config.real(rope + ".factor");
  if (type == "linear") return;
  m.rope_low_freq_factor = config.real(rope + ".low_freq_factor");
  m.rope_high_freq_factor = config.real(rope + ".high_freq_factor");
  m.rope_original_context = original_context(config, rope);
}

nlohmann::ordered_json rope_scaling_json(const spec::RunFile::Model& m) {
  if (m.rope_scaling == "none") return nullptr;
  nlohmann::ordered_json rope = {{"rope_type", m.rope_scaling}, {"factor", m.rope_factor}};
  if (m.rope_scaling != "llama3") return rope;
  rope["low_freq_factor"] = m.rope_low_freq_factor;
  rope["high_freq_factor"] = m.rope_high_freq_factor;
  rope["original_max_position_embeddings"] = m.rope_original_context;
  return rope;
}

}  // namespace herd::convert
