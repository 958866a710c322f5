#include "herd/draw/chart.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/draw/drawn_sample.h"

namespace herd::draw {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Chart, LeavesAGapWhereAValueIsNotFinite) {
  const Chart chart{.title = "loss", .series = {{"train", {{0, 3}, {1, 2}, {2, std::nan("")}, {3, 1}, {4, 0.5}}}}};
  const std::string svg = line_chart(chart);
  EXPECT_EQ(count(svg, "<polyline"), 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Chart, TakesNoPointsAtAll) { EXPECT_THAT(line_chart({.title = "empty"}), HasSubstr("</svg>")); }

TEST(Chart, StacksSeriesOnTopOfEachOther) {
  const std::string svg =
      stacked_areas({.title = "memory", .series = {{"weights", {{0, 1}, {1, 1}}}, {"rest", {{0, 1}, {1, 3}}}}});
  EXPECT_EQ(count(svg, "<polygon"), 2);
  // 4 of 4.16 high: 44 + 232 * (1 - 4 / 4.16)
  EXPECT_THAT(svg, HasSubstr("744.00,52.92"));
}

TEST(Chart, StacksStepsAsSteps) {
  const std::string svg = stacked_areas(
      {.title = "memory", .series = {{"a", {{0, 1}, {1, 1}, {1, 3}, {2, 3}}}, {"b", {{0, 1}, {1, 1}, {2, 1}}}}});
  // 4 of 4.16 high; x 1 of 2 is at 404: up there, from 1 to 3 and from 2 to 4.
  EXPECT_THAT(svg, HasSubstr("404.00,220.23 404.00,108.69"));
  EXPECT_THAT(svg, HasSubstr("404.00,164.46 404.00,52.92"));
}

}  // namespace
}  // namespace herd::draw
