#include "herd/strategies/gradient_codec.h"

#include <gtest/gtest.h>

#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using kernels::CodecKind;

GradientCodec codec_of(const std::string& compression, const std::string& levels = "multiples") {
  spec::RunFile run = small_run(2, "none", 2);
  run.strategy.compression = compression;
  run.strategy.compression_levels = levels;
  run.strategy.compression_ratio = 0.25;
  run.strategy.compression_warmup = 7;
  run.strategy.compression_exclude = "wte.* h.0.mlp.up.weight";
  return gradient_codec(run, spec::program_table(run, 1).groups);
}

TEST(GradientCodec, IsWhatTheRunFileAsksFor) {
  EXPECT_EQ(codec_of("none").form, program::Codec::kPlain);
  EXPECT_FALSE(codec_of("bf16").keeps_residuals());
  EXPECT_EQ(codec_of("topk").settings, (kernels::CodecSettings{.kind = CodecKind::kTopK, .ratio = 0.25}));
  EXPECT_EQ(codec_of("int8").settings.kind, CodecKind::kInt8);
  EXPECT_EQ(codec_of("int8", "quantiles").settings.kind, CodecKind::kInt8Quantiles);
  EXPECT_EQ(codec_of("int4").settings.kind, CodecKind::kInt4);
  EXPECT_EQ(codec_of("int4", "quantiles").settings.kind, CodecKind::kInt4Quantiles);
  EXPECT_EQ(codec_of("int4").warmup_steps, 7);
  EXPECT_TRUE(codec_of("int4").keeps_residuals());
}

TEST(GradientCodec, LeavesVectorsAndExcludedParametersExact) {
  const GradientCodec codec = codec_of("int8");
  EXPECT_TRUE(codec.stays_exact("h.1.mlp.up.bias", 1));
  EXPECT_FALSE(codec.stays_exact("h.1.mlp.up.weight", 2));
  EXPECT_TRUE(codec.stays_exact("h.0.mlp.up.weight", 2));
  EXPECT_TRUE(codec.stays_exact("wte.weight", 2));
  const spec::ParameterGroupShape group{.name = "h.0",
                                        .parameters = {{.name = "h.0.norm", .sizes = {8}},
                                                       {.name = "h.0.mlp.up.weight", .sizes = {8, 8}, .cut_dim = 0},
                                                       {.name = "h.0.mlp.down.weight", .sizes = {8, 8}, .cut_dim = 1}}};
  EXPECT_EQ(codec.exact_elements(group, 1, 0), 8 + 64);
  EXPECT_EQ(codec.exact_elements(group, 2, 1), 8 + 32);
}

}  // namespace
}  // namespace herd::strategies
