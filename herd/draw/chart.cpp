#include "herd/draw/chart.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "herd/draw/axis.h"
#include "herd/draw/svg.h"

namespace herd::draw {
namespace {

// Sizes of the picture, in pixels.
constexpr double kWidth = 760, kHeight = 320, kLeft = 64, kRight = 16, kTop = 44, kBottom = 44;

bool finite(const std::pair<double, double>& p) { return std::isfinite(p.first) && std::isfinite(p.second); }

// Maps the values of a chart to pixels.
struct Frame {
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  double x(double value) const { return kLeft + (value - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - (value - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
  }
};

Frame frame_of(const Chart& chart, bool from_zero) {
  Frame f{HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL};
  const auto include = [&](const Series& series) {
    for (const auto& point : series.points) {
      if (!finite(point)) continue;
      f.x_low = std::min(f.x_low, point.first);
      f.x_high = std::max(f.x_high, point.first);
      f.y_low = std::min(f.y_low, point.second);
      f.y_high = std::max(f.y_high, point.second);
    }
  };
  for (const Series& series : chart.series) include(series);
  for (const Series& line : chart.lines) include(line);
  if (f.x_low > f.x_high) f = Frame{};
  if (std::isfinite(chart.limit)) {
    f.y_low = std::min(f.y_low, chart.limit);
    f.y_high = std::max(f.y_high, chart.limit);
  }
  if (from_zero) f.y_low = std::min(0.0, f.y_low);
  if (f.x_high == f.x_low) f.x_high += 1;
  if (f.y_high == f.y_low) f.y_high += 1;
  f.y_high += (chart.mark_name.empty() ? 0.04 : 0.16) * (f.y_high - f.y_low);
  return f;
}

void draw_frame(Svg& svg, const Chart& chart, const Frame& f) {
  const auto label = [](double tick, const UnitScale& unit) {
    return tick_label(tick) + (unit.suffix.empty() ? "" : " " + unit.suffix);
  };
  const UnitScale y_scale = scale_of(chart.y_unit, f.y_high), x_scale = scale_of(chart.x_unit, f.x_high);
  for (const double tick : ticks(f.y_low / y_scale.divisor, f.y_high / y_scale.divisor, 5)) {
    const double at = f.y(tick * y_scale.divisor);
    svg.line(kLeft, at, kWidth - kRight, at, "grid");
    svg.text(kLeft - 8, at + 4, label(tick, y_scale), Anchor::kEnd, "faint");
  }
  for (const double tick : ticks(f.x_low / x_scale.divisor, f.x_high / x_scale.divisor, 8)) {
    svg.text(f.x(tick * x_scale.divisor), kHeight - kBottom + 16, label(tick, x_scale), Anchor::kMiddle, "faint");
  }
  svg.line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
  svg.text((kLeft + kWidth - kRight) / 2, kHeight - 8, chart.x_label, Anchor::kMiddle, "faint");
  svg.text(4, 14, chart.y_label, Anchor::kStart, "faint");
  double x = kLeft;
  for (size_t i = 0; i < chart.series.size() && chart.series.size() > 1; ++i) {
    if (chart.series[i].pale) continue;
    svg.rectangle(x, 24, 10, 10, colour_class(static_cast<int>(i)));
    svg.text(x + 14, 33, chart.series[i].name);
    x += 30 + 7.0 * static_cast<double>(chart.series[i].name.size());
  }
  for (const Series& line : chart.lines) {
    svg.polyline({{x, 29}, {x + 18, 29}}, "over");
    svg.text(x + 22, 33, line.name);
    x += 38 + 7.0 * static_cast<double>(line.name.size());
  }
}

void draw_mark(Svg& svg, const Chart& chart, const Frame& f) {
  if (chart.mark_name.empty()) return;
  const double x = f.x(chart.mark_x);
  svg.line(x, kTop, x, kHeight - kBottom, "axis");
  const bool left = x > kWidth / 2;
  svg.text(left ? x - 6 : x + 6, kTop + 12, chart.mark_name, left ? Anchor::kEnd : Anchor::kStart);
}

void draw_limit(Svg& svg, const Chart& chart, const Frame& f) {
  if (!std::isfinite(chart.limit)) return;
  svg.line(kLeft, f.y(chart.limit), kWidth - kRight, f.y(chart.limit), "axis");
  svg.text(kWidth - kRight, f.y(chart.limit) - 4, chart.limit_name, Anchor::kEnd, "faint");
}

}  // namespace

std::string line_chart(const Chart& chart) {
  Svg svg(kWidth, kHeight);
  const Frame f = frame_of(chart, chart.from_zero);
  draw_frame(svg, chart, f);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    std::vector<std::pair<double, double>> points;
    const auto flush = [&] {
      if (points.size() == 1) points.push_back({points[0].first + 1, points[0].second});  // a lone point is a dot
      if (!points.empty()) svg.polyline(points, chart.series[i].pale ? "pale" : colour_class(static_cast<int>(i)));
      points.clear();
    };
    for (const auto& point : chart.series[i].points) {
      if (finite(point)) {
        points.push_back({f.x(point.first), f.y(point.second)});
      } else {
        flush();
      }
    }
    flush();
  }
  draw_limit(svg, chart, f);
  return svg.finish(chart.title);
}

std::string stacked_areas(const Chart& chart) {
  // Each x stands as often as in the series with most points there: two points of one x make a step.
  std::map<double, size_t> counts;
  for (const Series& series : chart.series) {
    std::map<double, size_t> own_counts;
    for (const auto& point : series.points) {
      if (finite(point)) counts[point.first] = std::max(counts[point.first], ++own_counts[point.first]);
    }
  }
  std::vector<double> xs;
  for (const auto& [x, count] : counts) xs.insert(xs.end(), count, x);
  Chart sums = chart;
  std::vector<double> heights(xs.size(), 0);
  for (Series& series : sums.series) {
    std::vector<std::pair<double, double>> points;
    std::erase_if(series.points, [](const auto& point) { return !finite(point); });
    double last = 0;
    size_t next = 0;
    for (size_t i = 0; i < xs.size(); ++i) {
      if (next < series.points.size() && series.points[next].first == xs[i]) last = series.points[next++].second;
      heights[i] += last;
      points.push_back({xs[i], heights[i]});
    }
    series.points = std::move(points);
  }
  Svg svg(kWidth, kHeight);
  const Frame f = frame_of(sums, true);
  draw_frame(svg, chart, f);
  for (size_t i = 0; i < sums.series.size(); ++i) {
    std::vector<std::pair<double, double>> outline;
    for (const auto& [x, y] : sums.series[i].points) outline.push_back({f.x(x), f.y(y)});
    for (size_t k = xs.size(); k-- > 0;) {
      const double x = sums.series[i].points[k].first;
      outline.push_back({f.x(x), f.y(i == 0 ? 0 : sums.series[i - 1].points[k].second)});
    }
    svg.area(outline, colour_class(static_cast<int>(i)));
  }
  for (const Series& line : chart.lines) {
    std::vector<std::pair<double, double>> points;
    for (const auto& point : line.points) {
      if (finite(point)) points.push_back({f.x(point.first), f.y(point.second)});
    }
    svg.polyline(points, "over");
  }
  draw_limit(svg, chart, f);
  draw_mark(svg, chart, f);
  for (const Band& band : chart.bands)
    svg.rectangle(f.x(band.from), kTop, f.x(band.to) - f.x(band.from), kHeight - kTop - kBottom, "band", band.hover);
  return svg.finish(chart.title);
}

}  // namespace herd::draw
