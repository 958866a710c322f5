#include "herd/kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace herd::kernels {
namespace {

// The value of a pattern straight from the definition: 1 sign, `exponent_bits`, then the fraction.
double value_of(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const double fraction = (bits & ((1 << fraction_bits) - 1)) / std::ldexp(1.0, fraction_bits);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent ? std::ldexp(1 + fraction, exponent - bias) : std::ldexp(fraction, 1 - bias));
}

template <typename ToFloat, typename FromFloat>
void check_every_pattern(ToFloat to_float, FromFloat from_float, int exponent_bits) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double value = value_of(pattern, exponent_bits);
    const float got = to_float(pattern);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(got));
      EXPECT_TRUE(std::isnan(value_of(from_float(got), exponent_bits)));
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), value) << bits;
    ASSERT_EQ(from_float(got), pattern);
    // Half way to the next value up goes to the even one; a little less or more goes to the nearer one.
    const double next = value_of(static_cast<uint16_t>(pattern + 1), exponent_bits);
    if (!std::isfinite(value) || !std::isfinite(next) || (pattern & 0x7fff) == 0x7fff) continue;
    const auto half_way = static_cast<float>((value + next) / 2);
    if (static_cast<double>(half_way) != (value + next) / 2) continue;
    ASSERT_EQ(from_float(half_way), pattern % 2 ? pattern + 1 : pattern);
    ASSERT_EQ(from_float(std::nextafter(half_way, got)), pattern);
    ASSERT_EQ(from_float(std::nextafter(half_way, static_cast<float>(next))), pattern + 1);
  }
}

TEST(Half, Bf16RoundsEveryPatternToNearestEven) { check_every_pattern(float_from_bf16, bf16_from_float, 8); }
TEST(Half, Fp16RoundsEveryPatternToNearestEven) { check_every_pattern(float_from_fp16, fp16_from_float, 5); }

TEST(Half, OverflowIsInfinity) {
  EXPECT_EQ(float_from_fp16(fp16_from_float(65519.0f)), 65504.0f);
  EXPECT_EQ(float_from_fp16(fp16_from_float(65520.0f)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_from_fp16(fp16_from_float(-1e30f)), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_from_bf16(bf16_from_float(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace herd::kernels
