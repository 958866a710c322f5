#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "herd/kernels/finite.h"
#include "herd/kernels/hash.h"
#include "herd/kernels/sum_of_squares.h"

namespace herd::kernels {
namespace {

TEST(SumOfSquares, IsExactOnIntegersOfAnyCount) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  for (int64_t n : {0, 1, 15, 16, 17, 33, 100, 1000}) {
    EXPECT_EQ(sum_of_squares(values.data(), n), static_cast<double>(n * (n + 1) * (2 * n + 1) / 6));
  }
}

TEST(SumOfSquares, FollowsTheOrderThatItsHeaderStates) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(77);
  for (float& x : values) x = normal(random);
  double sums[16] = {};
  for (size_t i = 0; i < values.size(); ++i) sums[i % 16] += static_cast<double>(values[i]) * values[i];
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  EXPECT_EQ(sum_of_squares(values.data(), 77), sums[0]);
  std::vector<float> shifted(78);
  std::copy(values.begin(), values.end(), shifted.begin() + 1);
  EXPECT_EQ(sum_of_squares(shifted.data() + 1, 77), sums[0]);
}

TEST(SumOfSquares, DoesNotOverflowWhereFp32Would) {
  const float big = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of_squares(&big, 1), static_cast<double>(big) * big);
}

TEST(FirstNonFinite, FindsTheFirstAtAnyPosition) {
  for (int64_t count : {0, 1, 16, 37}) {
    std::vector<float> values(static_cast<size_t>(count), std::numeric_limits<float>::max());
    EXPECT_EQ(first_non_finite(values.data(), count), -1);
    for (int64_t i = count - 1; i >= 0; --i) {
      values[static_cast<size_t>(i)] =
          i % 2 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
      EXPECT_EQ(first_non_finite(values.data(), count), i);
    }
  }
}

// The lanes of the header in scalar code, up to the final mix, must be hit by each bit of the memory.
TEST(Hash, ChangesWithEveryBitAndWithTheLength) {
  std::vector<uint8_t> memory(333, 7);
  std::set<uint64_t> seen;
  for (int64_t bytes = 0; bytes <= 333; ++bytes) seen.insert(hash(memory.data(), bytes));
  for (size_t bit = 0; bit < 8 * memory.size(); ++bit) {
    memory[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    seen.insert(hash(memory.data(), 333));
    memory[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  EXPECT_EQ(seen.size(), 334u + 8 * 333);
}

TEST(Hash, SeesTwoSignFlipsInOneLaneAndTwoWordsSwapped) {
  std::vector<float> values(96, 1.0f);
  values[3] = 2.0f;
  const uint64_t before = hash(values.data(), 384);
  std::vector<float> flipped = values;
  flipped[0] = -flipped[0], flipped[32] = -flipped[32];
  EXPECT_NE(hash(flipped.data(), 384), before);
  std::swap(values[3], values[35]);
  EXPECT_NE(hash(values.data(), 384), before);
}

TEST(Hash, DoesNotDependOnAlignmentAndDoesOnTheSeed) {
  std::vector<uint8_t> memory(401);
  std::iota(memory.begin(), memory.end(), uint8_t{0});
  std::vector<uint8_t> shifted(404);
  std::copy(memory.begin(), memory.end(), shifted.begin() + 3);
  EXPECT_EQ(hash(memory.data(), 401), hash(shifted.data() + 3, 401));
  EXPECT_NE(hash(memory.data(), 401), hash(memory.data(), 401, 1));
}

}  // namespace
}  // namespace herd::kernels
