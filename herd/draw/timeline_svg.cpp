#include <algorithm>
#include <set>

#include "herd/base/units.h"
#include "herd/draw/axis.h"
#include "herd/draw/category_colour.h"
#include "herd/draw/svg.h"
#include "herd/draw/timeline_picture.h"
#include "herd/draw/unit.h"

namespace herd::draw {
namespace {

// Sizes of the picture, in pixels.
constexpr double kWidth = 1000, kLeft = 170, kRight = 16, kTop = 48, kRow = 20, kGap = 8, kBottom = 40;

std::vector<double> tops_of_rows(const sim::Timeline& timeline) {
  std::vector<double> row_tops;
  double y = kTop;
  for (size_t i = 0; i < timeline.rows.size(); ++i) {
    if (i > 0 && timeline.rows[i].group != timeline.rows[i - 1].group) y += kGap;
    row_tops.push_back(y);
    y += kRow;
  }
  return row_tops;
}

// Returns the categories in the order in which they first appear.
std::vector<std::string> categories_of(const sim::Timeline& timeline) {
  std::vector<std::string> categories;
  std::set<std::string_view> seen;
  for (const sim::Span& span : timeline.spans)
    if (seen.insert(span.category).second) categories.push_back(span.category);
  return categories;
}

}  // namespace

std::string timeline_svg(const sim::Timeline& timeline) {
  const std::vector<double> row_tops = tops_of_rows(timeline);
  const double bottom = row_tops.empty() ? kTop : row_tops.back() + kRow;
  const double end = std::max(sim::end_us(timeline), 1e-9), scale = (kWidth - kLeft - kRight) / end;
  Svg svg(kWidth, bottom + kBottom);
  svg.text(4, 16, timeline.title);
  double x = kLeft;
  for (const std::string& name : categories_of(timeline)) {
    svg.rectangle(x, 24, 10, 10, colour_class(category_colour(name)));
    svg.text(x + 14, 33, name);
    x += 32 + 7.0 * static_cast<double>(name.size());
  }
  const UnitScale unit = scale_of(Unit::kMicroseconds, end);
  for (const double tick : ticks(0, end / unit.divisor, 8)) {
    const double at = kLeft + tick * unit.divisor * scale;
    svg.line(at, kTop - 4, at, bottom, "grid");
    svg.text(at, bottom + 16, tick_label(tick) + " " + unit.suffix, Anchor::kMiddle, "faint");
  }
  for (size_t i = 0; i < timeline.rows.size(); ++i) {
    const bool first = i == 0 || timeline.rows[i].group != timeline.rows[i - 1].group;
    if (first) svg.text(4, row_tops[i] + 14, timeline.rows[i].group);
    svg.text(kLeft - 8, row_tops[i] + 14, timeline.rows[i].name, Anchor::kEnd, "faint");
  }
  for (const sim::Span& span : timeline.spans) {
    const double width = (span.end_us - span.start_us) * scale;
    const double left = kLeft + span.start_us * scale, top = row_tops[span.row] + 2;
    const std::string hover = span.name + "\n" + format_us(span.end_us - span.start_us) + " from " +
                              format_us(span.start_us) + (span.detail.empty() ? "" : "\n" + span.detail);
    svg.rectangle(left, top, std::max(width - (width > 3 ? 0.6 : 0), 0.8), kRow - 4,
                  colour_class(category_colour(span.category)), hover);
  }
  for (const sim::Arrow& arrow : timeline.arrows) {
    svg.line(kLeft + arrow.from_us * scale, row_tops[arrow.from_row] + kRow / 2, kLeft + arrow.to_us * scale,
             row_tops[arrow.to_row] + kRow / 2, "axis");
  }
  return svg.finish(timeline.title);
}

}  // namespace herd::draw
