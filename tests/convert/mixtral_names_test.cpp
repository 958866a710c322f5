#include "herd/convert/mixtral_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

using Strings = std::vector<std::string>;

spec::RunFile small_mixtral(const Strings& more = {}) {
  Strings overrides = {"model.kind=moe", "model.experts=3", "model.top_k=2", "model.tie_embeddings=false"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return small_run(overrides);
}

nlohmann::json mixtral_json(const Strings& more = {}) {
  return nlohmann::json::parse(format_mixtral_config({.model = small_mixtral(more).model}, "float32"));
}

TEST(MixtralNames, AreThoseOfThePublishedWeights) {
  std::map<std::string, Strings> names;
  const spec::RunFile run = small_mixtral({"model.expert_ffn=20"});
  for (const Weight& weight : weights_of(run)) {
    int64_t rows = 0;
    for (const StoredTensor& theirs : mixtral_tensors(weight, run.model)) {
      names[weight.name].push_back(theirs.name);
      rows += theirs.shape.size() < 2 ? 1 : theirs.shape[0];
    }
    EXPECT_EQ(rows, weight.rows()) << weight.name;
  }
  EXPECT_EQ(names["h.1.router.weight"], Strings{"layers.1.block_sparse_moe.gate.weight"});
  const std::string experts = "layers.0.block_sparse_moe.experts.";
  EXPECT_EQ(names["h.0.experts.gate.weight"],
            (Strings{experts + "0.w1.weight", experts + "1.w1.weight", experts + "2.w1.weight"}));
  EXPECT_EQ(names["h.0.experts.up.weight"][2], experts + "2.w3.weight");
  EXPECT_EQ(names["h.0.experts.down.weight"][1], experts + "1.w2.weight");
  EXPECT_EQ(names["h.1.ln_1.weight"], Strings{"layers.1.input_layernorm.weight"});
  EXPECT_EQ(names["head.weight"], Strings{"lm_head.weight"});
}

TEST(MixtralConfig, GivesBackTheModel) {
  for (const Strings& more : {Strings{"model.norm_eps=1e-6", "model.kv_heads=1"},
                              {"model.experts=7", "model.top_k=1", "model.rope_theta=5e5"},
                              {"model.rope_scaling=linear", "model.rope_factor=2.5", "model.tie_embeddings=true"}}) {
    const TransformersConfig config{.model = small_mixtral(more).model, .ends = {5, {6, 7}}};
    const TransformersConfig back = parse_mixtral_config(format_mixtral_config(config, "float32"), "config.json");
    EXPECT_EQ(back.ends, config.ends);
    EXPECT_EQ(back.model, config.model);
  }
}

TEST(MixtralConfig, HasTheDefaultsOfMixtral_WhereTheFileLeavesThemOut) {
  auto json = mixtral_json({"model.experts=8"});
  for (const char* name : {"num_local_experts", "num_experts_per_tok", "rope_theta", "rms_norm_eps"}) json.erase(name);
  const auto model = parse_mixtral_config(json.dump(), "config.json").model;
  EXPECT_EQ(model.experts, 8);
  EXPECT_EQ(model.top_k, 2);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.norm_eps, 1e-5);
}

TEST(MixtralConfig, RefusesNoiseInTheRouter) {
  auto json = mixtral_json();
  json["router_jitter_noise"] = 0.1;
  EXPECT_ERROR(parse_mixtral_config(json.dump(), "config.json"), Code::kBadConfig, "\"router_jitter_noise\" is 0.1",
               "herd's moe has 0.0", "fix:");
}

TEST(MixtralConfig, NamesTheMember_WhereAValueBreaksARule) {
  auto json = mixtral_json();
  json["num_experts_per_tok"] = 4;
  const std::string text = json.dump(2);
  const TransformersConfig config = parse_mixtral_config(text, "config.json");
  EXPECT_ERROR(run_of_config(config, mixtral_format(), text, "config.json"), Code::kBadConfig,
               "\"num_experts_per_tok\" (line ", "must not exceed \"num_local_experts\" (line ", "4 > 3");
}

TEST(MixtralConfig, CanNotStateOtherModels) {
  const std::pair<Strings, const char*> models[] = {{{"model.kind=llama"}, "fix: --to llama"},
                                                    {{"model.router=sigmoid"}, "model.router = \"sigmoid\""},
                                                    {{"model.normalize_weights=false"}, "normalize_weights = false"},
                                                    {{"model.shared_experts=1"}, "model.shared_experts = 1"}};
  for (const auto& [overrides, words] : models)
    EXPECT_ERROR(mixtral_format().check_model(small_mixtral(overrides).model), Code::kBadConfig, words, "fix:");
  EXPECT_NO_THROW(mixtral_format().check_model(small_mixtral().model));
}

}  // namespace
}  // namespace herd::convert
