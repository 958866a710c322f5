#include "herd/convert/qwen_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "herd/spec/build_model_table.h"
#include "model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

using Names = std::vector<std::string>;

spec::RunFile small_qwen(Qwen which, const Names& more = {}) {
  Names overrides = {"model.tie_embeddings=false", "model.kv_heads=1", "model.norm_eps=1e-6"};
  const auto add = [&](const Names& keys) { overrides.insert(overrides.end(), keys.begin(), keys.end()); };
  const bool is_moe = which == Qwen::k2Moe || which == Qwen::k3Moe;
  add({is_moe ? "model.kind=moe" : "model.kind=llama"});
  add({which == Qwen::k2 || which == Qwen::k2Moe ? "model.qkv_bias=true" : "model.qk_norm=true"});
  if (is_moe) add({"model.experts=3", "model.top_k=2", "model.expert_ffn=20", "model.normalize_weights=false"});
  if (which == Qwen::k2Moe) add({"model.shared_experts=2", "model.shared_gate=true"});
  add(more);
  return small_run(overrides);
}

nlohmann::json json_of(Qwen which, const Names& more = {}) {
  return nlohmann::json::parse(qwen_format(which).format_config({.model = small_qwen(which, more).model}, "float32"));
}

int64_t parameters_of(const TransformersFormat& format, const std::string& text) {
  const TransformersConfig config = format.parse_config(text, "config.json");
  return spec::model_table(run_of_config(config, format, text, "config.json"), 1).parameters();
}

Names names_of(Qwen which, const std::string& name, const Names& more = {}) {
  const spec::RunFile run = small_qwen(which, more);
  for (const Weight& weight : weights_of(run)) {
    if (weight.name != name) continue;
    Names names;
    for (const StoredTensor& theirs : qwen_format(which).tensors(weight, run.model)) names.push_back(theirs.name);
    return names;
  }
  return {};
}

TEST(QwenNames, AreThoseOfThePublishedWeights) {
  const std::string attention = "layers.1.self_attn.", mixture = "layers.0.mlp.", expert = mixture + "experts.";
  EXPECT_EQ(names_of(Qwen::k2, "h.1.attn.qkv.bias"),
            (Names{attention + "q_proj.bias", attention + "k_proj.bias", attention + "v_proj.bias"}));
  EXPECT_EQ(names_of(Qwen::k3Moe, "h.1.attn.q_norm.weight"), Names{attention + "q_norm.weight"});
  EXPECT_EQ(names_of(Qwen::k3, "h.1.attn.k_norm.weight"), Names{attention + "k_norm.weight"});
  EXPECT_EQ(names_of(Qwen::k2Moe, "h.0.router.weight"), Names{mixture + "gate.weight"});
  EXPECT_EQ(names_of(Qwen::k2Moe, "h.0.experts.down.weight"),
            (Names{expert + "0.down_proj.weight", expert + "1.down_proj.weight", expert + "2.down_proj.weight"}));
  EXPECT_EQ(names_of(Qwen::k2Moe, "h.0.shared.up.weight"), Names{mixture + "shared_expert.up_proj.weight"});
  EXPECT_EQ(names_of(Qwen::k2Moe, "h.0.shared_gate.weight"), Names{mixture + "shared_expert_gate.weight"});
  EXPECT_EQ(names_of(Qwen::k3Moe, "h.0.mlp.up.weight", {"model.dense_layers=1"}), Names{mixture + "up_proj.weight"});
  EXPECT_EQ(names_of(Qwen::k3Moe, "h.0.router.weight", {"model.dense_layers=1"}), Names{});
}

TEST(QwenConfig, GivesBackTheModel) {
  for (const auto& [which, more] :
       {std::pair(Qwen::k2, Names{"model.tie_embeddings=true"}),
        {Qwen::k3, {"model.head_width=20", "model.rope_theta=1e6"}},
        {Qwen::k2Moe, {"model.qkv_bias=false", "model.normalize_weights=true"}},
        {Qwen::k2Moe, {"model.rope_scaling=linear", "model.rope_factor=2.5"}},
        {Qwen::k3Moe, {"model.dense_layers=1", "model.head_width=20", "model.normalize_weights=true"}}}) {
    const TransformersConfig config{.model = small_qwen(which, more).model, .ends = {5, {6, 7}}};
    const TransformersFormat& format = qwen_format(which);
    EXPECT_NO_THROW(format.check_model(config.model));
    const TransformersConfig back = format.parse_config(format.format_config(config, "float32"), "config.json");
    EXPECT_EQ(back.ends, config.ends);
    EXPECT_EQ(back.model, config.model) << format.model;
  }
}

// Of Qwen1.5-MoE-A2.7B and Qwen3-30B-A3B, with the members that older and newer versions of transformers write. They
// have as many parameters as the published weights.
TEST(QwenConfig, ReadsThePublishedOnes) {
  const char* first = R"({"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
    "num_attention_heads": 16, "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": false, "use_sliding_window": false,
    "vocab_size": 151936, "decoder_sparse_step": 1, "moe_intermediate_size": 1408, "norm_topk_prob": false,
    "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60})";
  const auto model = qwen_format(Qwen::k2Moe).parse_config(first, "config.json").model;
  EXPECT_TRUE(model.qkv_bias && model.shared_gate && !model.qk_norm && !model.normalize_weights);
  EXPECT_EQ(std::tuple(model.experts, model.top_k, model.expert_ffn, model.shared_experts, model.dense_layers),
            std::tuple(60, 4, 1408, 4, 0));
  EXPECT_EQ(parameters_of(qwen_format(Qwen::k2Moe), first), 14315784192);
  const char* third = R"({"model_type": "qwen3_moe", "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "num_attention_heads": 32,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_parameters": {"rope_type": "default",
    "rope_theta": 1000000.0}, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 151936,
    "decoder_sparse_step": 1, "moe_intermediate_size": 768, "norm_topk_prob": true, "num_experts_per_tok": 8,
    "num_local_experts": 128, "mlp_only_layers": [], "use_sliding_window": false})";
  const auto newer = qwen_format(Qwen::k3Moe).parse_config(third, "config.json").model;
  EXPECT_TRUE(newer.qk_norm && newer.normalize_weights && !newer.qkv_bias && !newer.shared_gate);
  EXPECT_EQ(std::tuple(newer.experts, newer.top_k, newer.expert_ffn, newer.shared_experts, newer.head_width),
            std::tuple(128, 8, 768, 0, 128));
  EXPECT_EQ(parameters_of(qwen_format(Qwen::k3Moe), third), 30532122624);
}

TEST(QwenConfig, RefusesWhatHerdDoesNotCompute) {
  const std::tuple<const char*, nlohmann::json, const char*> changes[] = {
      {"use_sliding_window", true, "\"use_sliding_window\" is true"},
      {"decoder_sparse_step", 2, "\"decoder_sparse_step\" is 2, herd's moe has experts in all layers but the first"},
      {"mlp_only_layers", {1}, "\"mlp_only_layers\" is [1], herd's moe has experts in all layers but the first"},
      {"shared_expert_intermediate_size", 30, "each 20: 30 % 20 = 10"},
      {"layer_types", {"full_attention", "sliding_attention"}, "\"layer_types\" names \"sliding_attention\""}};
  for (const auto& [member, value, words] : changes) {
    auto json = json_of(Qwen::k2Moe);
    json[member] = value;
    EXPECT_ERROR(qwen_format(Qwen::k2Moe).parse_config(json.dump(), "config.json"), Code::kBadConfig, words, "fix:");
  }
  auto json = json_of(Qwen::k2Moe);
  json["sliding_window"] = 4096;  // which use_sliding_window leaves out
  EXPECT_NO_THROW(qwen_format(Qwen::k2Moe).parse_config(json.dump(), "config.json"));
}

TEST(QwenConfig, NamesTheMember_WhereAValueBreaksARule) {
  auto json = json_of(Qwen::k3Moe);
  json["mlp_only_layers"] = {1, 0};
  const std::string text = json.dump(2);
  const TransformersFormat& format = qwen_format(Qwen::k3Moe);
  EXPECT_ERROR(run_of_config(format.parse_config(text, "config.json"), format, text, "config.json"), Code::kBadConfig,
               "\"mlp_only_layers\" (line ", "must be less than \"num_hidden_layers\" (line ");
}

TEST(QwenConfig, CanNotStateOtherModels) {
  const std::tuple<Qwen, Names, const char*> models[] = {
      {Qwen::k2, {"model.kind=moe"}, "model.kind = \"moe\", but it has \"llama\""},
      {Qwen::k2, {"model.qkv_bias=false"}, "model.qkv_bias = false, but it has true"},
      {Qwen::k3, {"model.qkv_bias=true"}, "fix: --to qwen2 or qwen2_moe"},
      {Qwen::k2Moe, {"model.shared_gate=false"}, "model.shared_gate = false"},
      {Qwen::k2Moe, {"model.shared_gate=false", "model.shared_experts=0"}, "shared_experts = 0, but it has at least 1"},
      {Qwen::k2Moe, {"model.qk_norm=true"}, "fix: --to qwen3 or qwen3_moe"},
      {Qwen::k3Moe, {"model.shared_experts=1"}, "shared_experts = 1, but it has 0"},
      {Qwen::k3Moe, {"model.bias_balancing=1e-3"}, "model.bias_balancing"}};
  for (const auto& [which, overrides, words] : models)
    EXPECT_ERROR(qwen_format(which).check_model(small_qwen(which, overrides).model), Code::kBadConfig, words, "fix:");
}

}  // namespace
}  // namespace herd::convert
