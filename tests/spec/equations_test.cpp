#include <gtest/gtest.h>

#include <algorithm>

#include "herd/base/error.h"
#include "herd/spec/activations.h"
#include "herd/spec/compute.h"
#include "herd/spec/model_states.h"
#include "herd/spec/pipeline.h"

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
  EXPECT_EQ(kBf16Momentum.total(), 4 + 2 + 2 + 4);  // weight, gradient, momentum, variance
  EXPECT_EQ(1e9 * kBf16Adam.total() / kGB, 14);
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
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer, 8, true, RecomputeKind::kSelective), 34 * sbh / 8);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(layer, 8, true, RecomputeKind::kFull), 2 * sbh);
  EXPECT_THROW(layer_activation_bytes(layer, 7), Error);
}

TEST(Compute, MatchesGpt3) {
  EXPECT_NEAR(decoder_parameters(50257, 12288, 96), 175e9, 1.75e9);
  EXPECT_EQ(decoder_parameters(50257, 12288, 96), decoder_parameters(50257, 12288, 96, 96, 128, 4 * 12288));
  EXPECT_NEAR(devices_needed(175e9, 300e9, 160e12, 30 * 86400.0), 760, 1);
}

TEST(ModelStates, FollowPrecisionAndOptimizer) {
  RunFile run;
  EXPECT_EQ(state_bytes(run).total(), kFp32Adam.total());
  run.strategy.precision = "fp16";
  EXPECT_EQ(state_bytes(run), kFp16Master);
  run.strategy.precision = "bf16";
  EXPECT_EQ(state_bytes(run), kBf16Adam);
  run.optimizer.momentum_precision = "bf16";
  EXPECT_EQ(state_bytes(run), kBf16Momentum);
  run.optimizer.momentum_precision = "fp32";
  for (const char* offload : {"states", "nvme"}) {  // away from the weights, states need all of the master copy
    run.strategy.offload = offload;
    EXPECT_EQ(state_bytes(run), kFp16Master);
  }
  run.strategy.offload = "none";
  run.strategy.gradient_precision = "fp32";
  EXPECT_EQ(state_bytes(run), (StateBytes{2, 4, 10}));
  run.strategy.gradient_precision = "same";
  run.optimizer.kind = "sgd";
  EXPECT_EQ(state_bytes(run).total(), 2 + 2 + 2 + 4);
  run.optimizer.momentum = 0;
  run.strategy.precision = "fp32";
  EXPECT_EQ(state_bytes(run).total(), 8);
}

TEST(ModelStates, SendLessAcrossHosts_WithHybridShardsAndZeroPlusPlus) {
  EXPECT_EQ(hybrid_elements_sent(1024, 4, 1, 3), zero_elements_sent(1024, 4, 3));
  EXPECT_EQ(hybrid_elements_sent(1024, 1, 4, 2), zero_elements_sent(1024, 4, 0));
  EXPECT_EQ(hybrid_elements_sent(1024, 2, 2, 3), 3 * 1024 / 2 + 2 * 512 / 2);
  EXPECT_EQ(zero3_elements_across_hosts(1e9), 3e9);
  EXPECT_EQ(zero_plus_plus_elements_across_hosts(1e9), 0.75e9);
}

TEST(Activations, HoldWhatAttentionKeepsBeforeItsOutputProjection) {
  const LayerShape layer{.s = 2048, .b = 4, .h = 6144, .a = 64};
  const double sbh = 2048.0 * 4 * 6144;
  // The output projection's input 2sbh and the mask of its dropout sbh come after it.
  EXPECT_DOUBLE_EQ(attention_core_activation_bytes(layer) + 3 * sbh, attention_activation_bytes(layer));
}

TEST(Recompute, HoldsLeast_WhenTheSegmentIsTheRootOfTheDepth) {
  for (const int64_t layers : {1, 2, 12, 36, 96, 100}) {
    const auto units = [&](int64_t every) {
      const RecomputeSegments held = segments_every(layers, every);
      return held.kept + held.layers_per_segment;
    };
    int64_t least = units(1);
    for (int64_t every = 1; every <= layers; ++every) least = std::min(least, units(every));
    EXPECT_EQ(units(sqrt_interval(layers)), least) << layers;
  }
  EXPECT_EQ(sqrt_interval(100), 10);
  EXPECT_EQ(segments_every(100, 10).kept, 10);
  EXPECT_EQ(segments_every(7, 3).kept, 3);
  EXPECT_THROW(segments_every(4, 0), Error);
}

TEST(Pipelines, StandIdleAndHoldMicroBatchesAsPublished) {
  EXPECT_DOUBLE_EQ(bubble_fraction(Pipeline::kGpipe, 4, 8), 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble_fraction(Pipeline::k1F1B, 4, 8), 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble_fraction(Pipeline::kInterleaved, 4, 8, 2), 3.0 / 19);
  EXPECT_DOUBLE_EQ(bubble_fraction(Pipeline::kZeroBubbleH1, 4, 8), 1.0 / 9);
  for (const auto kind : {Pipeline::kGpipe, Pipeline::k1F1B, Pipeline::kInterleaved, Pipeline::kZeroBubbleH1})
    EXPECT_EQ(bubble_fraction(kind, 1, 8), 0);
  EXPECT_EQ(micro_batches_in_flight(Pipeline::kGpipe, 4, 8, 3), 8);
  EXPECT_EQ(micro_batches_in_flight(Pipeline::k1F1B, 4, 8, 0), 4);
  EXPECT_EQ(micro_batches_in_flight(Pipeline::k1F1B, 4, 2, 0), 2);
  EXPECT_EQ(micro_batches_in_flight(Pipeline::k1F1B, 4, 8, 3), 1);
  EXPECT_DOUBLE_EQ(micro_batches_in_flight(Pipeline::kInterleaved, 4, 8, 0, 2), 4 * (1 + 3.0 / 8));
  EXPECT_EQ(parse_pipeline("zero_bubble_h1"), Pipeline::kZeroBubbleH1);
  EXPECT_THROW(parse_pipeline("1b1f"), Error);
  EXPECT_THROW(bubble_fraction(Pipeline::kGpipe, 0, 1), Error);
}

struct Measured {  // Korthikanti et al. 2022, table 5: sequence parallel and selective recompute, 312 TFLOP/s devices
  StepShape step;
  double devices, seconds, model_percent, hardware_percent;
};

TEST(Compute, GivesTheUtilisationOfPublishedRuns) {
  const Measured runs[] = {{{4, 2048, 48, 6144, 51200}, 8, 1.10, 41.5, 43.7},
                           {{64, 2048, 96, 12288, 51200}, 64, 13.75, 51.4, 52.8},
                           {{280, 2048, 105, 20480, 51200}, 280, 37.83, 56.0, 57.0},
                           {{512, 2048, 128, 25600, 51200}, 512, 71.49, 56.3, 57.0}};
  for (const Measured& run : runs) {
    const double most = run.devices * run.seconds * 312e12 / 100;
    EXPECT_NEAR(model_step_flops(run.step) / most, run.model_percent, 0.2);
    EXPECT_NEAR(selective_recompute_step_flops(run.step) / most, run.hardware_percent, 0.3);
    EXPECT_NEAR(full_recompute_step_flops(run.step) / model_step_flops(run.step), 4.0 / 3, 0.01);
  }
}

}  // namespace
}  // namespace herd::spec
