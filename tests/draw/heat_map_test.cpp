#include "herd/draw/heat_map.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/draw/drawn_sample.h"

namespace herd::draw {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HeatMap, ShadesEachNumberAndTellsIt) {
  const std::string svg = heat_map(
      {.x_label = "step", .rows = {"a", "b"}, .columns = {1, 5}, .values = {{0, 1}, {9, std::nan("")}}, .darkest = 2});
  EXPECT_EQ(count(svg, "<title>a, step"), 2);
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.03\"><title>a, step 1: 0.00</title>"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.50\"><title>a, step 5: 1.00</title>"));
  EXPECT_THAT(svg, HasSubstr("\"><title>b, step 1: 9.00</title>"));
  EXPECT_EQ(count(svg, "fill-opacity=\""), 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(HeatMap, TakesNothing) { EXPECT_THAT(heat_map({}), HasSubstr("</svg>")); }

}  // namespace
}  // namespace herd::draw
