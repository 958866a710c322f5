// Draws line charts and stacked areas as SVG. Threads: pure.
//   line_chart({.title = "Loss", .x_label = "step", .y_label = "nats a token", .series = {{"train", points}}})
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "herd/draw/unit.h"

namespace herd::draw {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending; a point that is not finite leaves a gap
  bool pale = false;                              // drawn behind the others, as what a smoothed line comes from
};

struct Band {
  double from = 0, to = 0;
  std::string hover;  // text shown while the pointer is between from and to
};

struct Chart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  Unit x_unit = Unit::kPlain, y_unit = Unit::kPlain;  // what the values count; ticks say it
  std::vector<Series> series = {};
  bool from_zero = false;  // the y axis begins at 0; stacked areas always do
  // A horizontal line and its name show a budget or a bound; NaN = none.
  double limit = __builtin_nan("");
  std::string limit_name = {};
  // Stacked areas have dashed lines over them, bands to point at, and a vertical line at mark_x where it has a name.
  std::vector<Series> lines = {};
  std::vector<Band> bands = {};
  double mark_x = 0;
  std::string mark_name = {};
};

std::string line_chart(const Chart& chart);
// Stacks the series on top of each other. A series without a point at another one's x counts there as at its point
// before. Two points of one x are a step.
std::string stacked_areas(const Chart& chart);

}  // namespace herd::draw
