#include "herd/convert/gpt2_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

TEST(Gpt2Names, AreThoseOfThePublishedWeights) {
  const std::pair<const char*, Gpt2Name> expected[] = {{"wte.weight", {"wte.weight", false}},
                                                       {"wpe.weight", {"wpe.weight", false}},
                                                       {"h.0.ln_1.weight", {"h.0.ln_1.weight", false}},
                                                       {"h.11.attn.qkv.weight", {"h.11.attn.c_attn.weight", true}},
                                                       {"h.11.attn.qkv.bias", {"h.11.attn.c_attn.bias", false}},
                                                       {"h.1.attn.proj.weight", {"h.1.attn.c_proj.weight", true}},
                                                       {"h.1.mlp.up.weight", {"h.1.mlp.c_fc.weight", true}},
                                                       {"h.1.mlp.down.weight", {"h.1.mlp.c_proj.weight", true}},
                                                       {"h.1.mlp.down.bias", {"h.1.mlp.c_proj.bias", false}},
                                                       {"ln_f.bias", {"ln_f.bias", false}},
                                                       {"head.weight", {"lm_head.weight", false}}};
  for (const auto& [herd, theirs] : expected) {
    EXPECT_EQ(gpt2_name(herd).name, theirs.name);
    EXPECT_EQ(gpt2_name(herd).transposed, theirs.transposed) << herd;
  }
}

TEST(Gpt2Config, GivesBackTheModel) {
  TransformersConfig config{.model = small_run({"model.tie_embeddings=false", "model.dropout=0.25"}).model,
                            .ends = {5, {6}}};
  const TransformersConfig back = parse_gpt2_config(format_gpt2_config(config, "float32"), "config.json");
  EXPECT_EQ(back.ends, config.ends);
  config.model.kv_heads = config.model.head_width = 0;  // what the run file's rules fill in
  EXPECT_EQ(back.model, config.model);
}

TEST(Gpt2Config, TakesTheFormatsDefaults) {
  const auto model =
      parse_gpt2_config(
          R"({"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"vocab_size":50257,"n_positions":1024,"n_inner":null})",
          "config.json")
          .model;
  EXPECT_EQ(model.ffn, 3072);
  EXPECT_TRUE(model.tie_embeddings);
}

TEST(Gpt2Config, TakesEndsOfTextAsTransformersDoes) {
  auto json = nlohmann::json::parse(format_gpt2_config({.model = small_run().model}, "float32"));
  const std::pair<nlohmann::json, std::vector<int64_t>> cases[] = {
      {nullptr, {}}, {0, {0}}, {50256, {50256}}, {{7, 100, 50256}, {7, 100, 50256}}, {nlohmann::json::array(), {}}};
  for (const auto& [value, ids] : cases) {
    json["eos_token_id"] = value;
    const TransformersConfig config = parse_gpt2_config(json.dump(), "config.json");
    EXPECT_EQ(config.ends.end, ids) << value;
    EXPECT_EQ(parse_gpt2_config(format_gpt2_config(config, "float32"), "config.json").ends, config.ends) << value;
  }
  json["bos_token_id"] = nullptr;
  json.erase("eos_token_id");
  EXPECT_EQ(parse_gpt2_config(json.dump(), "config.json").ends, (TextEnds{std::nullopt, {50256}})) << "as published";
  const auto wrong = nlohmann::json::parse(R"(["</s>", -1, 2.5, [3, "</s>"], {}, true])");
  for (const auto& value : wrong) {
    json["eos_token_id"] = value;
    EXPECT_ERROR(parse_gpt2_config(json.dump(), "config.json"), Code::kCorruptFile, "\"eos_token_id\" is ", "fix:");
  }
}

TEST(Gpt2Config, TakesEndsOfTextFromTheGenerationConfig) {
  EXPECT_EQ(parse_generation_config(R"({"bos_token_id": 3, "eos_token_id": [5, 6]})", "file"), (TextEnds{3, {5, 6}}));
  EXPECT_EQ(parse_generation_config(R"({"do_sample": true})", "file"), TextEnds{});
  EXPECT_ERROR(parse_generation_config("[]", "file"), Code::kCorruptFile, "file: not a JSON object", "fix:");
}

TEST(TextEnds, GoThroughNotes) {
  for (const TextEnds& ends : {TextEnds{}, TextEnds{0, {0}}, TextEnds{1, {2, 50256}}, TextEnds{std::nullopt, {7}}}) {
    Notes notes;
    write_text_ends(ends, notes);
    EXPECT_EQ(text_ends_of(notes, default_text_ends()), ends);
  }
  EXPECT_EQ(text_ends_of({}, default_text_ends()), (TextEnds{1, {2}}));
  for (const char* text : {"", "x", "1,", ",1", "1,,2", "-1", "99999999999999999999", "none,1"})
    EXPECT_ERROR(text_ends_of({{"end_of_text", text}}, {}), Code::kCorruptFile, "\"end_of_text\"", "token ids");
}

TEST(Gpt2Config, RefusesWhatComputesSomethingElse_NamingMemberAndValue) {
  const auto text = nlohmann::json::parse(format_gpt2_config({.model = small_run().model}, "float32"));
  const std::pair<const char*, nlohmann::json> changes[] = {{"activation_function", "relu"},
                                                            {"activation_function", 3},
                                                            {"scale_attn_weights", false},
                                                            {"scale_attn_by_inverse_layer_idx", true}};
  for (const auto& [name, value] : changes) {
    auto json = text;
    json[name] = value;
    EXPECT_ERROR(parse_gpt2_config(json.dump(), "config.json"), Code::kBadConfig, "config.json, line ",
                 ": \"" + std::string(name), value.dump(), "fix:");
  }
  auto other = text;
  other["model_type"] = "mistral";
  other["architectures"] = {"MistralForCausalLM"};
  EXPECT_ERROR(
      transformers_format(other.dump(), "config.json"), Code::kBadConfig,
      "config.json: it is of a model of type \"mistral\" ([\"MistralForCausalLM\"]), but herd reads \"gpt2\", "
      "\"llama\", \"mixtral\", \"qwen2\", \"qwen3\", \"qwen2_moe\", \"qwen3_moe\", \"deepseek\", \"bert\" alone",
      "fix: the folder of such a model");
  EXPECT_ERROR(transformers_format("{\"model_type\": \"deepseek_v2\"}", "config.json"), Code::kBadConfig,
               "config.json, line 1: \"model_type\" is \"deepseek_v2\", whose attention is latent (MLA)",
               "\"deepseek\"");
  const auto of_type = [](const std::string& type, const std::string& architectures) {
    return "{\"architectures\": " + architectures + ",\n\"model_type\": " + type + "}";
  };
  for (const auto& [type, architecture] : {std::pair("\"gpt2\"", "LlamaForCausalLM"),
                                           {"\"llama\"", "MistralForCausalLM"},
                                           {"\"mixtral\"", "GPT2Model"},
                                           {"\"qwen2\"", "Qwen2MoeForCausalLM"}})
    EXPECT_ERROR(transformers_format(of_type(type, std::string("[\"") + architecture + "\"]"), "config.json"),
                 Code::kBadConfig,
                 std::string("config.json, line 1: \"architectures\" is [\"") + architecture +
                     "\"], but \"model_type\" (line 2) is " + type,
                 "fix: the config.json that belongs to these weights");
  for (const char* wrong : {"[]", "[7]", "{\"a\":\"GPT2Model\"}", "\"GPT2Model\""})
    EXPECT_ERROR(transformers_format(of_type("\"gpt2\"", wrong), "config.json"), Code::kBadConfig, "line 1", wrong);
  for (const char* right : {"[\"GPT2LMHeadModel\"]", "[\"Own\", \"GPT2Model\"]", "null"})
    EXPECT_EQ(transformers_format(of_type("\"gpt2\"", right), "config.json").type, "gpt2");
  EXPECT_ERROR(transformers_format(of_type("null", "null"), "config.json"), Code::kBadConfig,
               "config.json, line 2: \"model_type\" is null", "fix:");
  other.erase("model_type");
  EXPECT_ERROR(transformers_format(other.dump(), "config.json"), Code::kBadConfig, "names no \"model_type\"", "fix:");
  for (const auto& [name, value] : {std::pair<const char*, nlohmann::json>("n_layer", 0),
                                    {"vocab_size", "many"},
                                    {"n_embd", int64_t{1} << 62},
                                    {"n_head", uint64_t{1} << 63}}) {
    auto json = text;
    json[name] = value;
    EXPECT_ERROR(parse_gpt2_config(json.dump(), "config.json"), Code::kCorruptFile, name, "from 1 to 2^40", "fix:");
  }
  EXPECT_ERROR(parse_gpt2_config("{\"n_layer\": ", "config.json"), Code::kCorruptFile, "not a JSON object");
}

TEST(Gpt2Config, TakesNullForTheDefault_ButOfAFlagThatIsTrueByDefault) {
  auto json = nlohmann::json::parse(format_gpt2_config({.model = small_run().model}, "float32"));
  const auto config_with_null = [&](const char* name) {
    auto changed = json;
    changed[name] = nullptr;
    return parse_gpt2_config(changed.dump(2), "config.json").model;
  };
  EXPECT_EQ(config_with_null("layer_norm_epsilon").norm_eps, 1e-5);
  EXPECT_EQ(config_with_null("resid_pdrop").dropout, 0.1);
  EXPECT_EQ(config_with_null("n_inner").ffn, 4 * 36);
  for (const char* name : {"activation_function", "scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    EXPECT_EQ(config_with_null(name).layers, 2) << name;
  for (const char* name : {"scale_attn_weights", "tie_word_embeddings"})
    EXPECT_ERROR(config_with_null(name), Code::kBadConfig, ": \"" + std::string(name) + "\" is null",
                 "transformers 4 takes for false", "fix: true or false");
}

TEST(Gpt2Config, CanNotStateOtherModels) {
  for (const auto& [words, change] : {std::pair("model.norm", "model.norm=rmsnorm"),
                                      {"model.kv_heads", "model.kv_heads=1"},
                                      {"model.head_width", "model.head_width=8"},
                                      {"model.kind", "model.kind=llama"}})
    EXPECT_ERROR(require_gpt2(small_run({change}).model), Code::kBadConfig, words, "fix: --to herd");
}

}  // namespace
}  // namespace herd::convert
