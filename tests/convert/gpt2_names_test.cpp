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
  Gpt2Config config{.model = small_run({"model.tie_embeddings=false", "model.dropout=0.25"}).model,
                    .begin_of_text = 5,
                    .end_of_text = 6};
  const Gpt2Config back = parse_gpt2_config(format_gpt2_config(config, "float32"), "config.json");
  EXPECT_EQ(back.begin_of_text, 5);
  EXPECT_EQ(back.end_of_text, 6);
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

TEST(Gpt2Config, TakesTheFirstTokenAsEnd) {
  const Gpt2Config config{.model = small_run().model, .begin_of_text = 0, .end_of_text = 0};
  EXPECT_EQ(parse_gpt2_config(format_gpt2_config(config, "float32"), "config.json").end_of_text, 0);
}

TEST(Gpt2Config, RefusesWhatComputesSomethingElse_NamingMemberAndValue) {
  const auto text = nlohmann::json::parse(format_gpt2_config({.model = small_run().model}, "float32"));
  const std::pair<const char*, nlohmann::json> changes[] = {{"model_type", "llama"},
                                                            {"activation_function", "relu"},
                                                            {"layer_norm_epsilon", 1e-6},
                                                            {"scale_attn_weights", false},
                                                            {"scale_attn_by_inverse_layer_idx", true}};
  for (const auto& [name, value] : changes) {
    auto json = text;
    json[name] = value;
    EXPECT_ERROR(parse_gpt2_config(json.dump(), "config.json"), Code::kBadConfig, "config.json: \"" + std::string(name),
                 value.dump(), "fix:");
  }
  for (const auto& [name, value] : {std::pair<const char*, nlohmann::json>("n_layer", 0), {"vocab_size", "many"}}) {
    auto json = text;
    json[name] = value;
    EXPECT_ERROR(parse_gpt2_config(json.dump(), "config.json"), Code::kCorruptFile, name, "of at least 1", "fix:");
  }
  EXPECT_ERROR(parse_gpt2_config("{\"n_layer\": ", "config.json"), Code::kCorruptFile, "not a JSON object");
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
