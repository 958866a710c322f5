#include "herd/convert/bert_names.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/convert/transformers_config_internal.h"

namespace herd::convert {
namespace {

using Model = spec::RunFile::Model;

constexpr char kWords[] = "bert.embeddings.word_embeddings.weight", kHead[] = "cls.predictions.decoder.weight",
               kBias[] = "cls.predictions.bias", kDecoderBias[] = "cls.predictions.decoder.bias";

constexpr struct {
  std::string_view herd, theirs;
} kWhole[] = {{"wte.weight", kWords},
              {"wpe.weight", "bert.embeddings.position_embeddings.weight"},
              {"segments.weight", "bert.embeddings.token_type_embeddings.weight"},
              {"masked.weight", kHead}},
  kModules[] = {{"ln_embedding", "bert.embeddings.LayerNorm"},
                {"masked.dense", "cls.predictions.transform.dense"},
                {"masked.ln", "cls.predictions.transform.LayerNorm"},
                {"attn.proj", "attention.output.dense"},
                {"ln_1", "attention.output.LayerNorm"},
                {"mlp.up", "intermediate.dense"},
                {"mlp.down", "output.dense"},
                {"ln_2", "output.LayerNorm"}};

template <size_t kSize, class Entry>
std::string_view find_name(const Entry (&names)[kSize], std::string_view herd) {
  for (const auto& [mine, theirs] : names) {
    if (mine == herd) return theirs;
  }
  return {};
}

constexpr std::pair<std::string_view, std::string_view> kMembers[] = {
    {"model.layers", "num_hidden_layers"},          {"model.width", "hidden_size"},
    {"model.heads", "num_attention_heads"},         {"model.vocab", "vocab_size"},
    {"model.context", "max_position_embeddings"},   {"model.ffn", "intermediate_size"},
    {"model.norm_eps", "layer_norm_eps"},           {"model.dropout", "hidden_dropout_prob"},
    {"model.tie_embeddings", "tie_word_embeddings"}};

// Checks the members that change what the model computes.
void check_bert_equations(const ConfigFile& config) {
  const std::pair<const char*, Json> expected[] = {
      {"hidden_act", "gelu"}, {"position_embedding_type", "absolute"}, {"type_vocab_size", 2},
      {"is_decoder", false},  {"add_cross_attention", false},          {"quantization_config", nullptr}};
  for (const auto& [name, value] : expected) {
    const Json* found = config.find(name);
    if (found == nullptr || *found == value) continue;
    config.refuse(Code::kBadConfig, name,
                  "is " + found->dump() + ", herd's bert has " + (value.is_null() ? "none" : value.dump()),
                  "a model of BERT's kind");
  }
}

void check_masked_head(const ConfigFile& config) {
  const Json* architectures = config.find("architectures");
  if (architectures == nullptr) return;
  for (const Json& name : *architectures) {
    if (name == "BertForMaskedLM" || name == "BertForPreTraining") return;
  }
  config.refuse(Code::kBadConfig, "architectures",
                "is " + architectures->dump() +
                    ", which has no head that predicts masked words, but herd's bert is trained by it",
                "the folder of a BertForMaskedLM or a BertForPreTraining");
}

void require_bert(const Model& model) {
  const std::string name = "BERT", fix = "--to herd";
  require_kind(model, name, "bert");
  if (model.norm != "layernorm") refuse_model(name, "norm", "\"" + model.norm + "\"", "\"layernorm\"", fix);
  if (model.kv_heads != 0 && model.kv_heads != model.heads)
    refuse_model(name, "kv_heads", std::to_string(model.kv_heads),
                 "as many as heads (" + std::to_string(model.heads) + ")", fix);
  if (model.head_width != 0 && model.head_width * model.heads != model.width)
    refuse_model(name, "head_width", std::to_string(model.head_width), "width / heads", fix);
}

bool is_position_ids(std::string_view name) { return name.ends_with("embeddings.position_ids"); }

bool is_of_next_sentences(std::string_view name) {
  return name.starts_with("bert.pooler.") || name.starts_with("cls.seq_relationship.");
}

StoredTensor bert_bias(const Weight& weight, const Model& model) {
  if (model.tie_embeddings) return {.name = kBias, .shape = weight.shape, .other_name = kDecoderBias};
  // transformers 4 takes the one for the other; 5 keeps both of untied models, and adds the decoder's.
  return {.name = kDecoderBias, .shape = weight.shape, .other_name = kBias, .stored_twice = true};
}

}  // namespace

std::vector<StoredTensor> bert_tensors(const Weight& weight, const Model& model) {
  if (weight.name == "masked.bias") return {bert_bias(weight, model)};
  if (const std::string_view whole = find_name(kWhole, weight.name); !whole.empty())
    return {{.name = std::string(whole), .shape = weight.shape}};
  const size_t last_dot = weight.name.rfind('.');
  std::string module = weight.name.substr(0, last_dot), layer;
  const std::string kind = weight.name.substr(last_dot);  // .weight or .bias
  if (module.starts_with("h.")) {
    const size_t dot = module.find('.', 2);
    layer = "bert.encoder.layer." + module.substr(2, dot - 1);
    module = module.substr(dot + 1);
  }
  if (module == "attn.qkv") {
    std::vector<StoredTensor> parts;
    std::vector<int64_t> shape = weight.shape;
    shape[0] /= 3;
    for (const char* part : {"query", "key", "value"})
      parts.push_back({.name = layer + "attention.self." + part + kind, .shape = shape});
    return parts;
  }
  const std::string theirs = layer + std::string(find_name(kModules, module));
  StoredTensor tensor{.name = theirs + kind, .shape = weight.shape};
  if (theirs.ends_with("LayerNorm")) tensor.other_name = theirs + (kind == ".bias" ? ".beta" : ".gamma");
  return {tensor};
}

std::string format_bert_config(const TransformersConfig& config, std::string_view dtype) {
  const Model& m = config.model;
  nlohmann::ordered_json json = {{"architectures", {"BertForMaskedLM"}},
                                 {"model_type", "bert"},
                                 {"torch_dtype", dtype},
                                 {"vocab_size", m.vocab},
                                 {"max_position_embeddings", m.context},
                                 {"hidden_size", m.width},
                                 {"num_hidden_layers", m.layers},
                                 {"num_attention_heads", m.heads},
                                 {"intermediate_size", m.ffn == 0 ? 4 * m.width : m.ffn},
                                 {"hidden_act", "gelu"},
                                 {"layer_norm_eps", m.norm_eps},
                                 {"type_vocab_size", 2},
                                 {"position_embedding_type", "absolute"},
                                 {"hidden_dropout_prob", m.dropout},
                                 {"attention_probs_dropout_prob", m.dropout},
                                 {"initializer_range", 0.02},
                                 {"pad_token_id", nullptr},  // each token has its own embedding
                                 {"tie_word_embeddings", m.tie_embeddings}};
  set_ends(json, config.ends);
  return json.dump(2) + "\n";
}

TransformersConfig parse_bert_config(std::string_view text, const std::string& file) {
  const ConfigFile json(text, file);
  check_masked_head(json);
  check_bert_equations(json);
  TransformersConfig config;
  Model& m = config.model;
  m.kind = "bert";
  m.layers = json.whole("num_hidden_layers");
  m.width = json.whole("hidden_size");
  m.heads = json.whole("num_attention_heads");
  m.vocab = json.whole("vocab_size");
  m.context = json.whole("max_position_embeddings", 512);
  m.ffn = json.whole("intermediate_size");
  m.tie_embeddings = json.flag("tie_word_embeddings", true);
  m.norm_eps = json.real("layer_norm_eps", 1e-12);
  m.dropout = json.real("hidden_dropout_prob", 0.1);
  config.ends = ends_of(json, nullptr);
  return config;
}

const TransformersFormat& bert_format() {
  static const TransformersFormat format{.type = "bert",
                                         .architecture = "Bert",
                                         .model = "BERT",
                                         .loader = "AutoModelForMaskedLM",
                                         .prefix = "",  // the head's names have none, so names here have the body's
                                         .prefix_when_tied = true,
                                         .embedding = kWords,
                                         .head = kHead,
                                         .tensors = bert_tensors,
                                         .is_derived = is_position_ids,
                                         .is_left_out = is_of_next_sentences,
                                         .check_model = require_bert,
                                         .format_config = format_bert_config,
                                         .parse_config = parse_bert_config,
                                         .members = kMembers};
  return format;
}

}  // namespace herd::convert
