#include "herd/kernels/half_array.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "herd/base/error.h"
#include "herd/kernels/half.h"

namespace herd::kernels {
namespace {

TEST(HalfArray, ConvertsAsTheScalarFunctionsDo_EveryPatternAndEveryHalfWay) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    std::vector<uint16_t> half(0x10000);
    for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(half.size());
    widen(type, half.data(), wide.data(), 0x10000);
    for (size_t i = 0; i < half.size(); ++i) {
      const float expected = type == DType::kBF16 ? float_from_bf16(half[i]) : float_from_fp16(half[i]);
      ASSERT_EQ(std::isnan(wide[i]), std::isnan(expected)) << i;
      if (std::isnan(expected)) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
    for (const float nudge : {1.0f, 1 + 0x1p-9f, 1 + 0x1p-12f, 1 + 0x1p-8f, 1 + 0x1p-23f}) {
      std::vector<float> values = wide;
      for (float& x : values) x *= nudge;
      std::vector<uint16_t> again(half.size());
      narrow(type, values.data(), again.data(), 0x10000);
      for (size_t i = 0; i < half.size(); ++i) {
        if (std::isnan(values[i])) continue;
        ASSERT_EQ(again[i], type == DType::kBF16 ? bf16_from_float(values[i]) : fp16_from_float(values[i])) << i;
      }
    }
  }
}

TEST(HalfArray, TouchesNothingBeyondItsCount) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (int64_t count = 0; count <= 70; ++count) {
      std::vector<uint16_t> half(72, 7);
      std::vector<float> wide(72, 1.0f), again(72, 7.0f);
      narrow(type, wide.data(), half.data(), count);
      widen(type, half.data(), again.data(), count);
      for (size_t i = 0; i < 72; ++i) {
        const bool inside = i < static_cast<size_t>(count);
        ASSERT_EQ(half[i] == 7, !inside);
        ASSERT_EQ(again[i], inside ? 1.0f : 7.0f);
      }
    }
  }
}

TEST(HalfArray, RefusesOtherTypes) {
  float wide = 0;
  uint16_t half = 0;
  EXPECT_THROW(widen(DType::kF32, &half, &wide, 1), Error);
  EXPECT_THROW(narrow(DType::kI8, &wide, &half, 1), Error);
}

}  // namespace
}  // namespace herd::kernels
