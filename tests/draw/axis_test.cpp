#include "herd/draw/axis.h"

#include <gmock/gmock.h>

#include <cmath>

namespace herd::draw {
namespace {

using testing::ElementsAre;

TEST(Axis, TicksAreRoundAndInside) {
  EXPECT_THAT(ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(3.1, 4.9, 4), ElementsAre(3.5, 4, 4.5));
  EXPECT_TRUE(ticks(1, 1, 5).empty());
  EXPECT_TRUE(ticks(0, std::nan(""), 5).empty());
}

}  // namespace
}  // namespace herd::draw
