#include "herd/draw/unit.h"

#include <gtest/gtest.h>

#include "herd/draw/chart.h"

namespace herd::draw {
namespace {

TEST(Unit, IsTheOneThatPeopleReadTheValueIn) {
  EXPECT_EQ(scale_of(Unit::kBytes, 1.6e11).suffix, "GiB");
  EXPECT_EQ(scale_of(Unit::kBytes, 1000).suffix, "B");
  EXPECT_EQ(scale_of(Unit::kMicroseconds, 4e7).suffix, "s");
  EXPECT_EQ(scale_of(Unit::kMicroseconds, 9e7).suffix, "s");
  EXPECT_EQ(scale_of(Unit::kMicroseconds, 3e8).suffix, "min");
  EXPECT_EQ(scale_of(Unit::kMicroseconds, 0).suffix, "us");
  EXPECT_EQ(scale_of(Unit::kCount, 9092).suffix, "K");
  EXPECT_EQ(scale_of(Unit::kPlain, 1e9).suffix, "");
}

TEST(Unit, StandsOnTheTicksOfAChart) {
  Chart chart{.y_unit = Unit::kBytes};
  chart.series = {{"memory", {{0, 0}, {1, 150 * 0x1p30}}}};
  const std::string svg = line_chart(chart);
  EXPECT_NE(svg.find(">150 GiB<"), std::string::npos);
  EXPECT_EQ(svg.find("e+"), std::string::npos);
}

}  // namespace
}  // namespace herd::draw
