#include "herd/convert/deepseek_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "herd/spec/build_model_table.h"
#include "model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

spec::RunFile small_deepseek(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"model.kind=moe",         "model.experts=3",
                                        "model.top_k=2",          "model.dense_layers=1",
                                        "model.shared_experts=2", "model.expert_ffn=20",
                                        "model.layers=3",         "model.tie_embeddings=false",
                                        "model.norm_eps=1e-6",    "model.normalize_weights=false"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return small_run(overrides);
}

std::string config_of(const std::vector<std::string>& more = {}) {
  return deepseek_format().format_config({.model = small_deepseek(more).model}, "float32");
}

TEST(DeepseekNames, AreThoseOfThePublishedWeights) {
  std::map<std::string, std::vector<std::string>> names;
  const spec::RunFile run = small_deepseek();
  for (const Weight& weight : weights_of(run)) {
    for (const StoredTensor& theirs : deepseek_format().tensors(weight, run.model))
      names[weight.name].push_back(theirs.name);
  }
  EXPECT_EQ(names["h.0.mlp.gate.weight"].at(0), "layers.0.mlp.gate_proj.weight");
  EXPECT_FALSE(names.contains("h.0.router.weight"));
  EXPECT_EQ(names["h.1.router.weight"].at(0), "layers.1.mlp.gate.weight");
  EXPECT_EQ(names["h.2.experts.up.weight"].at(2), "layers.2.mlp.experts.2.up_proj.weight");
  EXPECT_EQ(names["h.1.shared.down.weight"].at(0), "layers.1.mlp.shared_experts.down_proj.weight");
}

TEST(DeepseekConfig, GivesBackTheModel) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"model.dense_layers=0", "model.shared_experts=0"},
                                               {"model.normalize_weights=true"}}) {
    const auto model = small_deepseek(more).model;
    EXPECT_NO_THROW(deepseek_format().check_model(model));
    EXPECT_EQ(deepseek_format().parse_config(config_of(more), "config.json").model, model);
  }
}

// Of deepseek-moe-16b: as many parameters as its weights have.
TEST(DeepseekConfig, ReadsThePublishedOne) {
  const std::string text = R"({"model_type": "deepseek", "architectures": ["DeepseekForCausalLM"],
    "attention_bias": false, "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 10944, "max_position_embeddings": 4096, "moe_intermediate_size": 1408,
    "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 28, "num_key_value_heads": 16,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000, "scoring_func": "softmax", "seq_aux": true,
    "tie_word_embeddings": false, "vocab_size": 102400})";
  const TransformersFormat& format = transformers_format(text, "config.json");
  EXPECT_EQ(format.type, "deepseek");
  const TransformersConfig config = format.parse_config(text, "config.json");
  const spec::RunFile run = run_of_config(config, format, text, "config.json");
  EXPECT_EQ(spec::model_table(run, 1).parameters(), 16375728128);
}

TEST(DeepseekConfig, RefusesWhatHerdDoesNotCompute) {
  for (const auto& [member, value] : {std::pair<const char*, nlohmann::json>("moe_layer_freq", 2),
                                      {"scoring_func", "sigmoid"},
                                      {"topk_method", "group_limited_greedy"},
                                      {"routed_scaling_factor", 16.0},
                                      {"kv_lora_rank", 512}}) {
    auto json = nlohmann::json::parse(config_of());
    json[member] = value;
    EXPECT_ERROR(deepseek_format().parse_config(json.dump(), "config.json"), Code::kBadConfig,
                 "\"" + std::string(member) + "\" is " + value.dump() + ", herd's moe has ", "fix:");
  }
}

TEST(DeepseekConfig, CanNotStateOtherModels) {
  using Keys = std::vector<std::string>;
  for (const Keys& other : {Keys{"model.router=sigmoid"}, Keys{"model.shared_gate=true"}, Keys{"model.qk_norm=true"},
                            Keys{"model.qkv_bias=true"}, Keys{"model.kind=llama", "model.dense_layers=0"}})
    EXPECT_ERROR(deepseek_format().check_model(small_deepseek(other).model), Code::kBadConfig,
                 "DeepSeek-MoE's format can't state this model", "fix:");
}

}  // namespace
}  // namespace herd::convert
