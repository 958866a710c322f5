// Line charts and stacked areas as SVG. Threads: pure.
//   line_chart({.title = "Loss", .x_label = "step", .y_label = "nats a token", .series = {{"train", points}}})
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace herd::draw {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; those that are not finite leave a gap
};

// What the pointer shows between two x.
struct Band {
  double from = 0, to = 0;
  std::string hover;
};

struct Chart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<Series> series = {};
  bool from_zero = false;  // the y axis begins at 0; stacked areas always do
  // A horizontal line with its name, a budget or a bound; NaN = none.
  double limit = __builtin_nan("");
  std::string limit_name = {};
  // Of stacked areas: lines over them, dashed; bands to point at; a place that is named, "" = none.
  std::vector<Series> lines = {};
  std::vector<Band> bands = {};
  double mark = 0;
  std::string mark_name = {};
};

std::string line_chart(const Chart& chart);
// Series on top of each other. They share their x values; a missing point counts as the one before it. Two points of
// one x are a step.
std::string stacked_areas(const Chart& chart);

}  // namespace herd::draw
