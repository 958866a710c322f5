// Draws a table of numbers as SVG, in which a darker cell is a larger number: one row a thing, one column a time.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

namespace herd::draw {

struct HeatMap {
  std::string x_label = {};
  std::vector<std::string> rows;            // their labels
  std::vector<double> columns;              // x of each
  std::vector<std::vector<double>> values;  // [row][column]; one that is not finite leaves its cell empty
  double darkest = 1;                       // values of the darkest shade and above look alike
};

// REQUIRES a value for each row and column.
std::string heat_map(const HeatMap& map);

}  // namespace herd::draw
