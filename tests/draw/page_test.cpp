#include "herd/draw/page.h"

#include <gmock/gmock.h>

#include "herd/draw/timeline_picture.h"
#include "tests/draw/drawn_sample.h"

namespace herd::draw {
namespace {

using testing::HasSubstr;

TEST(Page, LoadsNothingFromElsewhere) {
  const std::string page = html_page("A & B", {{"Times", timeline_svg(two_rows())}});
  EXPECT_THAT(page, HasSubstr("<h1>A &amp; B</h1>"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_EQ(count(page, "src="), 0);
  EXPECT_EQ(count(page, "href="), 0);
  EXPECT_EQ(count(page, "http"), count(page, "http://www.w3.org/2000/svg"));
}

}  // namespace
}  // namespace herd::draw
