#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/spec/activations.h"
#include "herd/spec/compute.h"
#include "herd/spec/model_states.h"

namespace herd::spec {
namespace {

constexpr double kGB = 1e9;

TEST(ModelStates, MatchPublishedModels) {
  EXPECT_EQ(kFp32Adam.total(), 16);
  EXPECT_NEAR(0.32e9 * kFp32Adam.total() / kGB, 5.12, 1e-9);  // BERT-Large
  EXPECT_NEAR(1.5e9 * kFp32Adam.total() / kGB, 24, 1e-9);     // GPT-2
  EXPECT_NEAR(17.2e9 * kFp32Adam.total() / kGB, 275, 0.5);    // Turing-NLG
  EXPECT_NEAR(175e9 * kFp32Adam.total() / kGB, 2800, 1e-6);   // GPT-3
  EXPECT_EQ(1e9 * kBf16Momentum.total() / kGB, 12);
  EXPECT_EQ(175e9 * kFp16Master.weight / kGB, 350);
  EXPECT_EQ(175e9 * kFp16Master.gradient / kGB, 350);
  EXPECT_EQ(175e9 * kFp16Master.states / kGB, 3 * 700);
  EXPECT_EQ(1e9 * kFp16MasterGradient.total() / kGB, 20);
}

TEST(ModelStates, ShardByZeroStage) {
  const double golden[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage) EXPECT_NEAR(zero_state_bytes(7.5e9, 64, stage) / kGB, golden[stage], 0.05);
  EXPECT_EQ(zero_elements_sent(1024, 4, 0), 2 * 1024 * 3 / 4);
  EXPECT_EQ(zero_elements_sent(1024, 4, 3), 3 * 1024 * 3 / 4);
  EXPECT_THROW(zero_state_bytes(1, 1, 4), Error);
}

TEST(Activations, AddUpTermByTerm) {
  const LayerShape layer{.s = 2048, .b = 4, .h = 6144, .a = 64};
  const double sbh = 2048.0 * 4 * 6144;
  EXPECT_EQ(attention_activation_bytes(layer), 11 * sbh + 5.0 * 64 * 2048 * 2048 * 4);
  EXPECT_EQ(mlp_activation_bytes(layer), 19 * sbh);
  EXPECT_EQ(norm_activation_bytes(layer), 4 * sbh);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer),
                   attention_activation_bytes(layer) + mlp_activation_bytes(layer) + norm_activation_bytes(layer));
}

TEST(Activations, ShrinkWithTensorAndSequenceParallelAndRecompute) {
  const LayerShape layer{.s = 2048, .b = 1, .h = 12288, .a = 96};
  const double sbh = 2048.0 * 12288, scores = 5.0 * 96 * 2048 / 12288;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer, 8), sbh * (10 + 24.0 / 8 + scores / 8));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer, 8, true), sbh * (34 + scores) / 8);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer, 8, true, Recompute::kSelective), 34 * sbh / 8);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer, 8, true, Recompute::kFull), 2 * sbh);
  EXPECT_THROW(layer_activation_bytes(layer, 7), Error);
}

TEST(Compute, MatchesGpt3) {
  EXPECT_NEAR(decoder_parameters(50257, 12288, 96), 175e9, 1.75e9);
  EXPECT_EQ(decoder_parameters(50257, 12288, 96), decoder_parameters(50257, 12288, 96, 96, 128, 4 * 12288));
  EXPECT_NEAR(devices_needed(175e9, 300e9, 160e12, 30 * 86400.0), 760, 1);
}

}  // namespace
}  // namespace herd::spec
