#include "herd/kernels/quantile_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "herd/kernels/block_codec.h"
#include "tests/kernels/codec_inputs.h"

namespace herd::kernels {
namespace {

std::vector<float> levels_of(const std::vector<float>& values, size_t num_levels) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<float> maxima(static_cast<size_t>((count + 255) / 256)), levels(num_levels);
  block_maxima(values.data(), count, 256, maxima.data());
  choose_levels(values.data(), count, 256, maxima.data(), levels);
  return levels;
}

TEST(QuantileLevels, AscendFromZeroToOne_InStepsOfAtMostTheBound) {
  for (const size_t num_levels : {2u, 3u, 8u, 128u}) {
    for (const int64_t count : {0, 1, 255, 5000}) {
      for (const CodecInput& input : codec_inputs(count)) {
        const std::vector<float> levels = levels_of(input.values, num_levels);
        EXPECT_EQ(levels.front(), 0.0f);
        EXPECT_EQ(levels.back(), 1.0f);
        for (size_t i = 1; i < num_levels; ++i) {
          ASSERT_GT(levels[i], levels[i - 1]) << input.name << " " << i;
          ASSERT_LE(levels[i] - levels[i - 1], 4.001 / static_cast<double>(num_levels - 1)) << input.name << " " << i;
        }
      }
    }
  }
}

TEST(QuantileLevels, LieWhereTheValuesLie) {
  const std::vector<float> levels = levels_of(heavy_tailed(100000), 128);
  const auto below_a_tenth = std::count_if(levels.begin(), levels.end(), [](float level) { return level < 0.1f; });
  EXPECT_GT(below_a_tenth, 25);  // multiples have 13
}

TEST(QuantileLevels, NearestIsNearest) {
  const std::vector<float> levels = levels_of(heavy_tailed(10000), 8);
  const auto nearest = nearest_levels(levels);
  for (int64_t i = 0; i < kLevelBins; ++i) {
    const float middle = static_cast<float>(i) / (kLevelBins - 1);
    float least = 1;
    for (const float level : levels) least = std::min(least, std::abs(level - middle));
    EXPECT_NEAR(std::abs(levels[nearest[static_cast<size_t>(i)]] - middle), least, 1e-6);
  }
  EXPECT_EQ(nearest.front(), 0);
  EXPECT_EQ(nearest.back(), 7);
}

}  // namespace
}  // namespace herd::kernels
