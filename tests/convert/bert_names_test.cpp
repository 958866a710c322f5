#include "herd/convert/bert_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "herd/convert/convert.h"
#include "herd/spec/build_model_table.h"
#include "herd/storage/safetensors.h"
#include "model_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensor_bytes.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

spec::RunFile small_bert(const Names& more = {}) {
  Names overrides = {"model.kind=bert"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return small_run(overrides);
}

Names names_of(const std::string& name, const Names& more = {}) {
  const spec::RunFile run = small_bert(more);
  Names names;
  for (const Weight& weight : weights_of(run)) {
    if (weight.name != name) continue;
    for (const StoredTensor& theirs : bert_tensors(weight, run.model)) {
      names.push_back(theirs.name);
      if (!theirs.other_name.empty()) names.push_back("or " + theirs.other_name);
    }
  }
  return names;
}

TEST(BertNames, AreThoseOfThePublishedWeights) {
  const std::string embeddings = "bert.embeddings.", layer = "bert.encoder.layer.1.", head = "cls.predictions.";
  const std::string self = layer + "attention.self.", norm = layer + "attention.output.LayerNorm.";
  EXPECT_EQ(names_of("wte.weight"), Names{embeddings + "word_embeddings.weight"});
  EXPECT_EQ(names_of("wpe.weight"), Names{embeddings + "position_embeddings.weight"});
  EXPECT_EQ(names_of("segments.weight"), Names{embeddings + "token_type_embeddings.weight"});
  EXPECT_EQ(names_of("ln_embedding.bias"),
            (Names{embeddings + "LayerNorm.bias", "or " + embeddings + "LayerNorm.beta"}));
  EXPECT_EQ(names_of("h.1.attn.qkv.weight"),
            (Names{self + "query.weight", self + "key.weight", self + "value.weight"}));
  EXPECT_EQ(names_of("h.1.attn.qkv.bias"), (Names{self + "query.bias", self + "key.bias", self + "value.bias"}));
  EXPECT_EQ(names_of("h.1.attn.proj.bias"), Names{layer + "attention.output.dense.bias"});
  EXPECT_EQ(names_of("h.1.ln_1.weight"), (Names{norm + "weight", "or " + norm + "gamma"}));
  EXPECT_EQ(names_of("h.1.mlp.up.weight"), Names{layer + "intermediate.dense.weight"});
  EXPECT_EQ(names_of("h.1.mlp.down.weight"), Names{layer + "output.dense.weight"});
  EXPECT_EQ(names_of("h.1.ln_2.bias"),
            (Names{layer + "output.LayerNorm.bias", "or " + layer + "output.LayerNorm.beta"}));
  EXPECT_EQ(names_of("masked.dense.weight"), Names{head + "transform.dense.weight"});
  EXPECT_EQ(names_of("masked.bias"), (Names{head + "bias", "or " + head + "decoder.bias"}));
  EXPECT_EQ(names_of("masked.weight"), Names{});
  const char* untied = "model.tie_embeddings=false";
  EXPECT_EQ(names_of("masked.bias", {untied}), (Names{head + "decoder.bias", "or " + head + "bias"}));
  EXPECT_EQ(names_of("masked.weight", {untied}), Names{head + "decoder.weight"});
}

TEST(BertConfig, GivesBackTheModel) {
  for (const char* tie : {"true", "false"}) {
    TransformersConfig config{
        .model =
            small_bert({std::string("model.tie_embeddings=") + tie, "model.dropout=0.25", "model.norm_eps=1e-9"}).model,
        .ends = {5, {6}}};
    EXPECT_NO_THROW(bert_format().check_model(config.model));
    const std::string text = format_bert_config(config, "float32");
    const TransformersConfig back = parse_bert_config(text, "config.json");
    EXPECT_EQ(back.ends, config.ends);
    EXPECT_EQ(run_of_config(back, bert_format(), text, "config.json").model, config.model);
  }
}

// Of bert-base-uncased, whose weights beside the pooler and the head for next sentences are as many.
TEST(BertConfig, ReadsThePublishedOne) {
  const char* text = R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
    "position_embedding_type": "absolute", "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522})";
  EXPECT_EQ(transformers_format(text, "config.json").type, "bert");
  const TransformersConfig config = parse_bert_config(text, "config.json");
  EXPECT_EQ(config.model.kind, "bert");
  EXPECT_TRUE(config.model.tie_embeddings);
  EXPECT_EQ(config.ends, TextEnds{});
  const spec::RunFile run = run_of_config(config, bert_format(), text, "config.json");
  EXPECT_EQ(spec::model_table(run, 1).parameters(), 109514298);
}

TEST(BertConfig, RefusesWhatHerdDoesNotCompute) {
  const auto text = nlohmann::json::parse(format_bert_config({.model = small_bert().model}, "float32"));
  const std::tuple<const char*, nlohmann::json, const char*> changes[] = {
      {"hidden_act", "gelu_new", "is \"gelu_new\", herd's bert has \"gelu\""},
      {"position_embedding_type", "relative_key", "is \"relative_key\", herd's bert has \"absolute\""},
      {"type_vocab_size", 1, "is 1, herd's bert has 2"},
      {"is_decoder", true, "is true, herd's bert has false"},
      {"add_cross_attention", true, "is true, herd's bert has false"},
      {"quantization_config", {{"bits", 4}}, "herd's bert has none"},
      {"architectures", {"BertModel"}, "is [\"BertModel\"], which has no head that predicts masked words"},
      {"architectures",
       {"BertForSequenceClassification"},
       "fix: the folder of a BertForMaskedLM or a BertForPreTrain"}};
  for (const auto& [member, value, words] : changes) {
    auto json = text;
    json[member] = value;
    EXPECT_ERROR(parse_bert_config(json.dump(), "config.json"), Code::kBadConfig,
                 "config.json, line 1: \"" + std::string(member) + "\" ", words, "fix:");
  }
  auto older = text;
  older.erase("architectures"), older.erase("position_embedding_type"), older.erase("type_vocab_size");
  older["architectures"] = {"BertForPreTraining"};
  EXPECT_NO_THROW(parse_bert_config(older.dump(), "config.json"));
  older["num_attention_heads"] = 5;
  EXPECT_ERROR(
      run_of_config(parse_bert_config(older.dump(), "config.json"), bert_format(), older.dump(), "config.json"),
      Code::kBadConfig, "\"num_attention_heads\" (line 1)", "\"hidden_size\"");
}

TEST(BertConfig, CanNotStateOtherModels) {
  for (const auto& [change, words] :
       {std::pair("model.norm=rmsnorm", "model.norm = \"rmsnorm\", but it has \"layernorm"),
        {"model.kv_heads=1", "model.kv_heads = 1, but it has as many as heads (3)"},
        {"model.head_width=8", "model.head_width = 8, but it has width / heads"},
        {"model.kind=gpt", "model.kind = \"gpt\", but it has \"bert\"\n  fix: --to gpt2"}})
    EXPECT_ERROR(bert_format().check_model(small_bert({change}).model), Code::kBadConfig, "BERT's format", words,
                 "fix:");
}

using Tensors = std::map<std::string, std::string>;  // bytes by name

Tensors tensors_in(const fs::path& folder) {
  const SafetensorsFile file(folder / "model.safetensors");
  Tensors all;
  for (const TensorEntry& entry : file.tensors()) all[entry.name] = bytes_of(file, entry);
  return all;
}

// Writes the folder's model.safetensors anew with `change` made to its tensors; a tensor that comes in has one dim.
void change_tensors(const fs::path& folder, const std::function<void(Tensors&)>& change) {
  Tensors all = tensors_in(folder);
  std::map<std::string, std::vector<int64_t>> shapes;
  {
    const SafetensorsFile file(folder / "model.safetensors");
    for (const TensorEntry& entry : file.tensors()) shapes[entry.name] = entry.shape;
  }
  change(all);
  std::vector<TensorEntry> entries;
  for (const auto& [name, bytes] : all) {
    const auto shape = shapes.find(name);
    entries.push_back(
        {name, "F32",
         shape != shapes.end() ? shape->second : std::vector<int64_t>{static_cast<int64_t>(bytes.size() / 4)}});
  }
  SafetensorsWriter writer(folder / "model.safetensors", entries, {{"format", "pt"}}, unsynced_files());
  for (const TensorEntry& entry : writer.entries()) writer.append(std::as_bytes(std::span(all.at(entry.name))));
  writer.commit();
}

class BertFolder : public testing::TestWithParam<const char*> {
 protected:
  BertFolder() : run_(small_bert({std::string("model.tie_embeddings=") + GetParam()})) {
    checkpoint_ = save_model(root_ / "runs", run_);
    convert({.source = checkpoint_, .out = bert_, .to = Format::kBert}, unsynced_files());
  }
  Converted import(const std::string& name) const {
    return convert({.source = bert_, .out = root_ / name}, unsynced_files());
  }
  void expect_saved(const std::string& name, const std::string& weight) const {
    EXPECT_EQ(bytes_of(root_ / name, weight), bytes_of(checkpoint_, weight)) << weight;
  }
  bool tied() const { return run_.model.tie_embeddings; }

  TemporaryFolder root_;
  spec::RunFile run_;
  fs::path checkpoint_, bert_ = root_ / "bert";
};

TEST_P(BertFolder, ThereAndBackGivesTheSameBits) {
  const Converted back = import("back");
  EXPECT_EQ(back.run.model, run_.model);
  EXPECT_EQ(back.warnings.size(), 1u) << "of the tokenizer";
  for (const Weight& weight : weights_of(run_)) expect_saved("back", weight.name);
  convert({.source = root_ / "back", .out = root_ / "again", .to = Format::kBert}, unsynced_files());
  EXPECT_EQ(contents_of(root_ / "again"), contents_of(bert_));
  const Tensors all = tensors_in(bert_);
  EXPECT_EQ(all.size(), 5u + 2 * 16 + (tied() ? 5 : 7)) << "no moments";
  EXPECT_EQ(all.contains("cls.predictions.decoder.bias"), !tied());
}

TEST_P(BertFolder, IsReadByOlderNames_AndWithoutWhatHerdHasNoPlaceFor) {
  change_tensors(bert_, [&](Tensors& all) {
    Tensors older;
    for (const auto& [present, bytes] : all) {
      std::string name = present;
      if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
      if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
      if (name != "cls.predictions.decoder.bias") older[name] = bytes;
    }
    for (const char* name : {"bert.embeddings.position_ids", "bert.pooler.dense.bias", "cls.seq_relationship.weight"})
      older[name] = "0123";
    all = older;
  });
  EXPECT_EQ(import("older").warnings.back(),
            "herd's bert has no place for bert.pooler.dense.bias, cls.seq_relationship.weight, which are left out\n"
            "  fix: keep " +
                bert_.string() + " for programs that need them");
  for (const Weight& weight : weights_of(run_)) expect_saved("older", weight.name);
}

TEST_P(BertFolder, TakesTheHeadsBiasByEitherName) {
  change_tensors(bert_, [](Tensors& all) {
    all["cls.predictions.decoder.bias"] = all.at("cls.predictions.bias");
    all.erase("cls.predictions.bias");
  });
  import("by_decoder");
  expect_saved("by_decoder", "masked.bias");
  change_tensors(bert_, [](Tensors& all) {
    all["cls.predictions.bias"] = all.at("cls.predictions.decoder.bias");
    all.at("cls.predictions.bias")[6] ^= 1;
  });
  if (tied()) {
    EXPECT_ERROR(import("both"), Code::kBadConfig,
                 "\"cls.predictions.decoder.bias\" differs from \"cls.predictions.bias\" in row 0, column 1: ",
                 "fix: one of the two left out");
  } else {
    import("both");
    expect_saved("both", "masked.bias");
  }
}

TEST_P(BertFolder, IsRefusedWhereATensorIsMissingOrExtra) {
  change_tensors(bert_, [](Tensors& all) { all["cls.predictions.other.weight"] = "0123"; });
  EXPECT_ERROR(import("extra"), Code::kBadConfig, "holds \"cls.predictions.other.weight\", which BERT of its config");
  change_tensors(bert_, [](Tensors& all) {
    all.erase("cls.predictions.other.weight"), all.erase("cls.predictions.transform.dense.bias");
  });
  EXPECT_ERROR(import("missing"), Code::kBadConfig, "lacks \"cls.predictions.transform.dense.bias\"", "fix:");
  fs::remove(bert_ / "model.safetensors");
  EXPECT_ERROR(import("none"), Code::kBadConfig, "fix: in Python, AutoModelForMaskedLM.from_pretrained(");
}

INSTANTIATE_TEST_SUITE_P(Tied, BertFolder, testing::Values("true", "false"),
                         [](const auto& one) { return one.param == std::string("true") ? "Tied" : "Untied"; });

}  // namespace
}  // namespace herd::convert
