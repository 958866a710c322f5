#include "herd/nn/key_value_cache.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd::nn {
namespace {

constexpr int64_t kB = 2, kH = 3, kC = 5, kWidth = 4;
constexpr int64_t kBytes = 2 * kB * kH * kC * kWidth * 4;

at::Tensor rows(int64_t T, int64_t first) {
  return (at::arange(kB * kH * T * kWidth, at::kFloat) + static_cast<double>(first)).view({kB, kH, T, kWidth});
}

TEST(KeyValueCache, GivesThoseOfAllTokensSoFar_AndBeginsAnew) {
  KeyValueCache cache(kBytes);
  EXPECT_EQ(cache.bytes(), kBytes);
  for (int round = 0; round < 2; ++round) {
    const at::Tensor k = rows(3, 100 * round), v = rows(3, 1000 + round), k4 = rows(1, 7), v4 = rows(1, 8);
    const auto [keys, values] = cache.append(k, v, 0);
    EXPECT_TRUE(at::equal(keys, k));
    EXPECT_TRUE(at::equal(values, v));
    const auto [more_keys, more_values] = cache.append(k4, v4, 3);
    EXPECT_TRUE(at::equal(more_keys, at::cat({k, k4}, 2)));
    EXPECT_TRUE(at::equal(more_values, at::cat({v, v4}, 2)));
  }
}

TEST(KeyValueCache, HoldsAContext_AndNoTokenMore) {
  KeyValueCache cache(kBytes);
  cache.append(rows(kC, 0), rows(kC, 0), 0);
  EXPECT_THROW(cache.append(rows(1, 0), rows(1, 0), kC), Error);
  KeyValueCache odd(kBytes + 2);
  EXPECT_THROW(odd.append(rows(1, 0), rows(1, 0), 0), Error);
}

}  // namespace
}  // namespace herd::nn
