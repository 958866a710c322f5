#include "herd/spec/kept_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

RunFile known_model(const std::string& name, const std::vector<std::string>& overrides) {
  return parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" + name + ".toml",
                        overrides);
}

template <class Bytes>
double sum_of(const std::map<LayerTensor, Bytes>& tensors) {
  double sum = 0;
  for (const auto& [tensor, bytes] : tensors) sum += static_cast<double>(bytes);
  return sum;
}

TEST(KeptTensors, SumToTheGraphOfALayerWithExperts) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{}, {"model.shared_experts=2"}, {"strategy.precision=fp16", "model.dropout=0.1"}}) {
    const RunFile run = known_model("mixtral-8x7b", keys);
    const auto kept = kept_tensors(run, 2);
    EXPECT_EQ(sum_of(kept), static_cast<double>(model_table(run, 2).blocks[1].graph_bytes));
    EXPECT_EQ(kept.at(LayerTensor::kExperts), int64_t{2} * 2 * (2 * 4096) * 14336 * 2);  // gate and up of top_k, 16 bit
  }
}

TEST(KeptTensors, OfASharedGateAreTheOutputsItScalesAndItself) {
  const auto bytes = [](const char* gate) {
    const RunFile run = known_model("mixtral-8x7b", {"model.shared_experts=2", gate});
    return kept_tensors(run, 2).at(LayerTensor::kExperts);
  };
  const int64_t rows = 2 * known_model("mixtral-8x7b", {}).model.context;
  EXPECT_EQ(bytes("model.shared_gate=true") - bytes("model.shared_gate=false"), rows * (4096 + 1) * 2);
}

TEST(KeptTensors, SumToTheGraphOfALayerInTheTable) {
  for (const char* name : {"gpt2-medium", "llama3-8b", "bert-large"}) {
    for (const std::vector<std::string>& keys : {std::vector<std::string>{},
                                                 {"model.dropout=0.1"},
                                                 {"strategy.precision=fp16"},
                                                 {"mesh.tp=4"},
                                                 {"mesh.tp=4", "strategy.keep_gathered=false"},
                                                 {"mesh.tp=4", "strategy.sequence_parallel=false"},
                                                 {"mesh.tp=4", "model.qk_norm=true", "model.qkv_bias=true"},
                                                 {"model.dropout=0.1", "strategy.recompute=selective"},
                                                 {"mesh.tp=2", "model.dropout=0.1", "strategy.precision=fp16"}}) {
      const bool is_rotary = std::string_view(name) == "llama3-8b";
      if (!is_rotary && std::ranges::count(keys, "model.qk_norm=true") > 0) continue;
      const RunFile run = known_model(name, keys);
      EXPECT_EQ(sum_of(kept_tensors(run, 2)), static_cast<double>(model_table(run, 2).blocks[1].graph_bytes))
          << name << " " << (keys.empty() ? "" : keys.back());
    }
  }
}

TEST(KeptTensors, HoldScoresOnlyWhereDropoutNeedsThem) {
  const RunFile flash = known_model("gpt2", {}), math = known_model("gpt2", {"model.dropout=0.1"});
  EXPECT_FALSE(kept_tensors(flash, 1).contains(LayerTensor::kSoftmax));
  EXPECT_EQ(kept_tensors(math, 1).at(LayerTensor::kSoftmax), int64_t{2} * 12 * 1024 * 1024);  // 2as^2b
  EXPECT_FALSE(kept_tensors(math, 1).contains(LayerTensor::kSoftmaxMask));
}

TEST(KeptTensors, AreThePublishedOnesWhereBothCountThem) {
  const RunFile run = known_model("gpt2", {"model.dropout=0.1"});
  const auto kept = kept_tensors(run, 4);
  int same = 0;
  for (const auto& [tensor, bytes] : layer_activation_terms({.s = 1024, .b = 4, .h = 768, .a = 12})) {
    if (!kept.contains(tensor)) continue;
    EXPECT_EQ(static_cast<double>(kept.at(tensor)), bytes) << tensor_name(tensor);
    ++same;
  }
  EXPECT_EQ(same, 11);  // all but the masks
}

TEST(KeptTensors, OfT5AreRefused) { EXPECT_THROW(kept_tensors(known_model("t5-small", {}), 1), Error); }

TEST(LayerActivationTerms, SumToTheEquations) {
  const LayerShape layer{.s = 2048, .b = 4, .h = 6144, .a = 64};
  for (const int t : {1, 2, 8}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const RecomputeKind recompute : {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull})
        EXPECT_DOUBLE_EQ(sum_of(layer_activation_terms(layer, t, sequence_parallel, recompute)),
                         layer_activation_bytes(layer, t, sequence_parallel, recompute))
            << t << sequence_parallel;
    }
  }
  const auto terms = layer_activation_terms(layer);
  const auto of = [&](std::initializer_list<LayerTensor> tensors) {
    double sum = 0;
    for (const LayerTensor tensor : tensors) sum += terms.at(tensor);
    return sum;
  };
  using enum LayerTensor;
  EXPECT_EQ(of({kFirstNormOutput, kQueriesAndKeys, kValues, kSoftmax, kSoftmaxMask, kSoftmaxDropped}),
            attention_core_activation_bytes(layer));
  EXPECT_EQ(of({kFirstNormOutput, kQueriesAndKeys, kValues, kSoftmax, kSoftmaxMask, kSoftmaxDropped, kAttentionOutput,
                kAttentionMask}),
            attention_activation_bytes(layer));
  EXPECT_EQ(of({kSecondNormOutput, kUp, kActivated, kFeedMask}), mlp_activation_bytes(layer));
  EXPECT_EQ(of({kFirstNormInput, kSecondNormInput}), norm_activation_bytes(layer));
}

}  // namespace
}  // namespace herd::spec
