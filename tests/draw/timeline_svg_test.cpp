#include "herd/draw/timeline_picture.h"

#include <gmock/gmock.h>

#include "tests/draw/drawn_sample.h"

namespace herd::draw {
namespace {

using testing::HasSubstr;

TEST(TimelineSvg, DrawsOneBarPerSpanWithItsTimes) {
  const std::string svg = timeline_svg(two_rows());
  EXPECT_EQ(count(svg, "<rect"), 2 + 2);  // bars and the legend
  EXPECT_THAT(svg, HasSubstr("send x0\n5 us from 10 us\n4 KiB"));
}

}  // namespace
}  // namespace herd::draw
