#include "herd/draw/svg.h"

#include <gmock/gmock.h>

#include "herd/draw/timeline_picture.h"
#include "tests/draw/drawn_sample.h"

namespace herd::draw {
namespace {

using testing::HasSubstr;

TEST(Svg, EscapesWhatItShows) {
  EXPECT_EQ(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
  EXPECT_THAT(timeline_svg(two_rows()), HasSubstr("a &lt;step&gt;"));
}

}  // namespace
}  // namespace herd::draw
