#include "herd/data/sample_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace herd {
namespace {

TEST(SampleOrder, VisitsEveryWindowOnceInEachEpoch) {
  for (const int64_t windows : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 255, 256, 257, 1000, 4049}) {
    const SampleOrder order(windows, 7);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < windows; ++i) {
        const int64_t window = order.window_of(epoch * windows + i);
        EXPECT_TRUE(window >= 0 && window < windows) << window;
        seen.insert(window);
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), windows);
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpochAndNothingElse) {
  const auto first = [](uint64_t seed, int64_t begin) {
    std::vector<int64_t> windows;
    for (int64_t i = 0; i < 100; ++i) windows.push_back(SampleOrder(1000, seed).window_of(begin + i));
    return windows;
  };
  EXPECT_EQ(first(1, 0), first(1, 0));
  EXPECT_NE(first(1, 0), first(2, 0));
  EXPECT_NE(first(1, 0), first(1, 1000));
}

TEST(SampleOrder, IsTheSameInEveryVersion) {
  const SampleOrder order(1000, 1);
  const std::vector<int64_t> golden = {565, 452, 668, 206, 180, 19, 104, 231};
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < 8; ++i) windows.push_back(order.window_of(i));
  EXPECT_EQ(windows, golden);
}

// For a random order the mean of |next - previous| is n/3; a shift or a swap of neighbours is far from it.
TEST(SampleOrder, LeavesNeighboursFarApart) {
  constexpr int64_t kWindows = 4096;
  const SampleOrder order(kWindows, 3);
  double sum = 0;
  for (int64_t i = 1; i < kWindows; ++i)
    sum += static_cast<double>(std::abs(order.window_of(i) - order.window_of(i - 1)));
  EXPECT_NEAR(sum / kWindows, kWindows / 3.0, kWindows / 30.0);
}

}  // namespace
}  // namespace herd
