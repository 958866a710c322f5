#include "herd/draw/heat_map.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "herd/draw/axis.h"
#include "herd/draw/svg.h"

namespace herd::draw {
namespace {

// Sizes of the picture, in pixels.
constexpr double kMapWidth = 760, kMapLeft = 110, kMapRight = 16, kMapTop = 8, kMapBottom = 44;
constexpr double kTallRow = 16, kLowRow = 8;  // labels of low rows would touch, so every second one is left out
constexpr size_t kMostTallRows = 32;
constexpr double kPalest = 0.03;  // so that a cell of 0 is seen to be there

std::string two_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

}  // namespace

std::string heat_map(const HeatMap& map) {
  const bool is_tall = map.rows.size() <= kMostTallRows;
  const double height = is_tall ? kTallRow : kLowRow, bottom = kMapTop + height * static_cast<double>(map.rows.size());
  const double width =
      (kMapWidth - kMapLeft - kMapRight) / static_cast<double>(std::max<size_t>(1, map.columns.size()));
  Svg svg(kMapWidth, bottom + kMapBottom);
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const double y = kMapTop + height * static_cast<double>(r);
    if (is_tall || r % 2 == 0) svg.text(kMapLeft - 8, y + std::min(height, 12.0), map.rows[r], Anchor::kEnd, "faint");
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const double value = map.values.at(r).at(c);
      if (!std::isfinite(value)) continue;
      svg.rectangle(kMapLeft + width * static_cast<double>(c), y, width, height - 1, colour_class(0),
                    map.rows[r] + ", " + map.x_label + " " + tick_label(map.columns[c]) + ": " + two_digits(value),
                    std::clamp(value / map.darkest, kPalest, 1.0));
    }
  }
  const size_t every = 1 + map.columns.size() / 8;
  for (size_t c = 0; c < map.columns.size(); c += every)
    svg.text(kMapLeft + width * (static_cast<double>(c) + 0.5), bottom + 16, tick_label(map.columns[c]),
             Anchor::kMiddle, "faint");
  svg.text(kMapLeft + (kMapWidth - kMapLeft - kMapRight) / 2, bottom + 36, map.x_label, Anchor::kMiddle, "faint");
  return svg.finish(map.x_label);
}

}  // namespace herd::draw
