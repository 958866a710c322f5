#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "herd/draw/axis.h"
#include "herd/draw/chart.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"
#include "herd/draw/table.h"
#include "herd/draw/timeline_picture.h"

namespace herd::draw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

sim::Timeline two_rows() {
  return {"a <step>",
          {{"rank 0", "compute"}, {"rank 1", "send"}},
          {{0, "forward 0", "forward", 0, 10}, {1, "send x0", "send", 10, 15, "4 KiB"}}};
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Axis, TicksAreRoundAndInside) {
  EXPECT_THAT(ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(3.1, 4.9, 4), ElementsAre(3.5, 4, 4.5));
  EXPECT_TRUE(ticks(1, 1, 5).empty());
  EXPECT_TRUE(ticks(0, std::nan(""), 5).empty());
}

TEST(Svg, EscapesWhatItShows) {
  EXPECT_EQ(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
  EXPECT_THAT(timeline_svg(two_rows()), HasSubstr("a &lt;step&gt;"));
}

TEST(TimelineSvg, DrawsOneBarPerSpanWithItsTimes) {
  const std::string svg = timeline_svg(two_rows());
  EXPECT_EQ(count(svg, "<rect"), 2 + 2);  // bars and the legend
  EXPECT_THAT(svg, HasSubstr("send x0\n5 us from 10 us\n4 KiB"));
}

TEST(TimelineTrace, IsTraceEventJsonWithAProcessPerGroup) {
  const auto trace = nlohmann::json::parse(timeline_trace(two_rows()));
  int processes = 0, spans = 0;
  for (const auto& event : trace["traceEvents"]) {
    processes += event["name"] == "process_name";
    if (event["ph"] != "X") continue;
    ++spans;
    if (event["name"] == "send x0") {
      EXPECT_EQ(event["ts"], 10.0);
      EXPECT_EQ(event["dur"], 5.0);
      EXPECT_EQ(event["pid"], 2);
    }
  }
  EXPECT_EQ(processes, 2);
  EXPECT_EQ(spans, 2);
}

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

TEST(Page, LoadsNothingFromElsewhere) {
  const std::string page = html_page("A & B", {{"Times", timeline_svg(two_rows())}});
  EXPECT_THAT(page, HasSubstr("<h1>A &amp; B</h1>"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_EQ(count(page, "src="), 0);
  EXPECT_EQ(count(page, "href="), 0);
  EXPECT_EQ(count(page, "http"), count(page, "http://www.w3.org/2000/svg"));
}

TEST(Table, AlignsNumbersOnTheRight) {
  const Table table{{{"name"}, {"bytes", true}}, {{"ring", "7"}, {"direct", "1024"}}};
  EXPECT_EQ(text_table(table), "name    bytes\nring        7\ndirect   1024\n");
  EXPECT_THAT(html_table(table), HasSubstr("<td class=\"right\">1024</td>"));
}

}  // namespace
}  // namespace herd::draw
