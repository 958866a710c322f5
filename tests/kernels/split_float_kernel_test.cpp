#include "herd/kernels/split_float_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "herd/kernels/half.h"

namespace herd::kernels {
namespace {

struct Halves {
  explicit Halves(const std::vector<float>& exact) : high(exact.size()), low(exact.size()) {
    split_float(exact.data(), high.data(), low.data(), static_cast<int64_t>(exact.size()));
  }
  std::vector<float> joined() const {
    std::vector<float> out(high.size());
    join_float(high.data(), low.data(), out.data(), static_cast<int64_t>(out.size()));
    return out;
  }
  std::vector<uint16_t> high, low;
};

// All upper halves beside lower halves at and around the middle.
std::vector<float> numbers() {
  std::vector<float> out;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x5a5au, 0x7fffu, 0x8000u, 0x8001u, 0xa5a5u, 0xffffu})
      out.push_back(std::bit_cast<float>(upper << 16 | lower));
  }
  return out;
}

TEST(SplitFloat, GivesEveryNumberBack_BitByBit) {
  const std::vector<float> exact = numbers(), again = Halves(exact).joined();
  for (size_t i = 0; i < exact.size(); ++i) {
    if (!std::isnan(exact[i])) {
      ASSERT_EQ(std::bit_cast<uint32_t>(again[i]), std::bit_cast<uint32_t>(exact[i]));
    }
  }
}

TEST(SplitFloat, ItsUpperHalvesAreTheNearest_AndOfTwoThatAreAsNearTheOneFartherFromZero) {
  const std::vector<float> exact = numbers();
  const Halves halves(exact);
  int even = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::isnan(exact[i])) continue;
    const uint32_t bits = std::bit_cast<uint32_t>(exact[i]);
    const bool between = (bits & 0xffff) == 0x8000;
    const uint32_t expected = between ? (bits >> 16) + 1 : bf16_from_float(exact[i]);
    ASSERT_EQ(halves.high[i], expected) << bits;
    even += halves.high[i] != bf16_from_float(exact[i]);
  }
  EXPECT_EQ(even, 255 * 128);  // half of those between, up to the last finite one
}

TEST(SplitFloat, BeyondTheRangeOfBf16TheUpperHalfIsInfinite_AndTheNumberComesBack) {
  const float largest = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> exact = {
      largest, -largest, infinity, -infinity, std::bit_cast<float>(0x7f7f8000u), std::bit_cast<float>(0x7f7f7fffu)};
  const Halves halves(exact);
  EXPECT_EQ(halves.high, (std::vector<uint16_t>{0x7f80, 0xff80, 0x7f80, 0xff80, 0x7f80, 0x7f7f}));
  EXPECT_EQ(halves.joined(), exact);
}

TEST(SplitFloat, ANaNStaysOne_InBothForms) {
  const std::vector<float> exact = numbers();
  const Halves halves(exact);
  const std::vector<float> again = halves.joined();
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(std::isnan(float_from_bf16(halves.high[i])), std::isnan(exact[i]));
    ASSERT_EQ(std::isnan(again[i]), std::isnan(exact[i]));
    ASSERT_EQ(std::signbit(again[i]), std::signbit(exact[i]));
  }
}

TEST(SplitFloat, TouchesNothingBeyondItsCount_AtAnyCountAndAlignment) {
  const std::vector<float> exact(80, std::bit_cast<float>(0x3f80c001u));
  for (int64_t count = 0; count <= 70; ++count) {
    for (const size_t shift : {0, 1, 3}) {
      std::vector<uint16_t> high(80, 7), low(80, 7);
      std::vector<float> joined(80, 7.0f);
      split_float(exact.data() + shift, high.data() + shift, low.data() + shift, count);
      join_float(high.data() + shift, low.data() + shift, joined.data() + shift, count);
      for (size_t i = 0; i < 80; ++i) {
        const bool inside = i >= shift && i < shift + static_cast<size_t>(count);
        ASSERT_EQ(high[i], inside ? 0x3f81 : 7);
        ASSERT_EQ(low[i], inside ? 0xc001 : 7);
        ASSERT_EQ(joined[i], inside ? exact[0] : 7.0f);
      }
    }
  }
}

}  // namespace
}  // namespace herd::kernels
