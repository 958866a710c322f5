#include "herd/base/midmean.h"

#include <gtest/gtest.h>

namespace herd {
namespace {

TEST(Midmean, IsTheMeanOfTheMiddleHalf) {
  EXPECT_EQ(midmean({3}), 3);
  EXPECT_EQ(midmean({1, 5, 3}), 3);
  EXPECT_EQ(midmean({100, 1, 4, 2}), 3) << "of four the middle two, as the median";
  EXPECT_EQ(midmean({9, 1, 2, 3, 4, 5, 6, 1000}), 4.5) << "without two of each end";
  EXPECT_TRUE(std::isnan(midmean({})));
}

}  // namespace
}  // namespace herd
