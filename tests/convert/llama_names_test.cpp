#include "herd/convert/llama_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

using Strings = std::vector<std::string>;

spec::RunFile small_llama(const Strings& more = {}) {
  Strings overrides = {"model.kind=llama", "model.kv_heads=1", "model.tie_embeddings=false"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return small_run(overrides);
}

nlohmann::json config_of(const Strings& more = {}) {
  return nlohmann::json::parse(format_llama_config({.model = small_llama(more).model}, "float32"));
}

TEST(LlamaNames, AreThoseOfThePublishedWeights) {
  std::map<std::string, Strings> names;
  for (const Weight& weight : weights_of(small_llama()))
    for (const StoredTensor& theirs : llama_tensors(weight, small_llama().model))
      names[weight.name].push_back(theirs.name);
  EXPECT_EQ(names.size(), 2u + 1 + 2 * 7);
  EXPECT_EQ(names["wte.weight"], Strings{"embed_tokens.weight"});
  EXPECT_EQ(names["h.1.ln_1.weight"], Strings{"layers.1.input_layernorm.weight"});
  EXPECT_EQ(names["h.1.attn.qkv.weight"],
            (Strings{"layers.1.self_attn.q_proj.weight", "layers.1.self_attn.k_proj.weight",
                     "layers.1.self_attn.v_proj.weight"}));
  EXPECT_EQ(names["h.0.attn.proj.weight"], Strings{"layers.0.self_attn.o_proj.weight"});
  EXPECT_EQ(names["h.0.ln_2.weight"], Strings{"layers.0.post_attention_layernorm.weight"});
  EXPECT_EQ(names["h.0.mlp.gate.weight"], Strings{"layers.0.mlp.gate_proj.weight"});
  EXPECT_EQ(names["h.0.mlp.up.weight"], Strings{"layers.0.mlp.up_proj.weight"});
  EXPECT_EQ(names["h.0.mlp.down.weight"], Strings{"layers.0.mlp.down_proj.weight"});
  EXPECT_EQ(names["ln_f.weight"], Strings{"norm.weight"});
  EXPECT_EQ(names["head.weight"], Strings{"lm_head.weight"});
  const auto parts = llama_tensors({"h.0.attn.qkv.weight", {60, 36}}, small_llama().model);
  EXPECT_EQ(parts[0].shape, (std::vector<int64_t>{36, 36}));
  EXPECT_EQ(parts[2].shape, (std::vector<int64_t>{12, 36}));
}

TEST(LlamaConfig, GivesBackTheModel) {
  for (const Strings& more : {Strings{"model.norm_eps=1e-6", "model.dropout=0.25"},
                              {"model.rope_scaling=linear", "model.rope_factor=2.5", "model.rope_theta=5e5"},
                              {"model.rope_scaling=llama3", "model.rope_factor=8", "model.rope_original_context=64"},
                              {"model.head_width=8", "model.kv_heads=3", "model.tie_embeddings=true"}}) {
    const TransformersConfig config{.model = small_llama(more).model, .ends = {5, {6, 7}}};
    const TransformersConfig back = parse_llama_config(format_llama_config(config, "float32"), "config.json");
    EXPECT_EQ(back.ends, config.ends);
    EXPECT_EQ(back.model, config.model);
  }
}

TEST(LlamaConfig, TakesPositionsAsNewerVersionsWriteThem) {
  auto json = config_of();
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                             {"factor", 8.0},           {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  const auto model = parse_llama_config(json.dump(), "config.json").model;
  EXPECT_EQ(model, small_llama({"model.rope_scaling=llama3", "model.rope_factor=8", "model.rope_original_context=64",
                                "model.rope_theta=500000"})
                       .model);
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  EXPECT_EQ(parse_llama_config(json.dump(), "config.json").model, small_llama().model);
}

TEST(LlamaConfig, RefusesWhatComputesSomethingElse_NamingMemberValueAndFix) {
  const nlohmann::json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}},
                       dynamic = {{"type", "dynamic"}, {"factor", 2.0}};
  const std::tuple<const char*, nlohmann::json, const char*, const char*> changes[] = {
      {"hidden_act", "gelu", "\"hidden_act\" is \"gelu\"", "herd's llama has \"silu\""},
      {"attention_bias", true, "\"attention_bias\" is true", "has false"},
      {"mlp_bias", true, "\"mlp_bias\" is true", "has false"},
      {"sliding_window", 4096, "\"sliding_window\" is 4096", "has none"},
      {"rope_scaling", yarn, "\"rope_scaling.rope_type\" is \"yarn\"", "\"linear\" and \"llama3\""},
      {"rope_parameters", dynamic, "\"rope_parameters.type\" is \"dynamic\"", "\"linear\" and \"llama3\""},
      {"quantization_config", {{"bits", 4}}, "\"quantization_config\" is", "has none"}};
  for (const auto& [name, value, is, have] : changes) {
    auto json = config_of();
    json[name] = value;
    EXPECT_ERROR(parse_llama_config(json.dump(), "config.json"), Code::kBadConfig, "config.json, line 1: ", is, have,
                 "fix:");
  }
  for (const char* name : {"hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"}) {
    auto json = config_of();
    json.erase(name);
    EXPECT_ERROR(parse_llama_config(json.dump(), "config.json"), Code::kCorruptFile, name, "from 1 to 2^40", "fix:");
  }
  auto json = config_of();
  json["rope_scaling"] = {{"rope_type", "llama3"}};
  EXPECT_ERROR(parse_llama_config(json.dump(), "config.json"), Code::kCorruptFile, "factor", "fix:");
}

TEST(LlamaConfig, TakesNullForTheDefault) {
  for (const char* name : {"hidden_act", "attention_bias", "mlp_bias", "num_key_value_heads", "head_dim",
                           "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "attention_dropout",
                           "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"}) {
    auto null = config_of(), absent = config_of();
    null[name] = nullptr;
    absent.erase(name);
    EXPECT_EQ(parse_llama_config(null.dump(), "config.json").model,
              parse_llama_config(absent.dump(), "config.json").model)
        << name;
  }
}

TEST(LlamaConfig, NamesMemberAndLineOfTheFile_WhereAValueBreaksARule) {
  const auto error = [](const std::string& text, const char* name) {
    const TransformersConfig config = parse_llama_config(text, name);
    run_of_config(config, llama_format(), text, name);
  };
  const std::string text = config_of().dump(2);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    return other.replace(other.find(from), from.size(), to);
  };
  const auto line_of = [&](const std::string& member) {
    return std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<int>(text.find(member)), '\n'));
  };
  EXPECT_ERROR(error(changed("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.0"), "folder/config.json"),
               Code::kBadConfig,
               "folder/config.json: \"rms_norm_eps\" (line " + line_of("\"rms_norm_eps\"") + ") must be in (0, 1]",
               "got 0.0\n  fix:");
  EXPECT_ERROR(error(changed("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2"), "config.json"),
               Code::kBadConfig,
               "config.json: \"num_key_value_heads\" (line " + line_of("\"num_key_value_heads\"") +
                   ") must divide \"num_attention_heads\" (line " + line_of("\"num_attention_heads\"") + "): 3 % 2 = 1",
               "fix: \"num_key_value_heads\" = 1");
}

TEST(LlamaConfig, CanNotStateOtherModels) {
  EXPECT_ERROR(llama_format().check_model(small_run().model), Code::kBadConfig, "model.kind = \"gpt\"",
               "fix: --to gpt2");
}

}  // namespace
}  // namespace herd::convert
