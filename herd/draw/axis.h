// Round tick positions and their labels. Threads: pure.
#pragma once

#include <string>
#include <vector>

namespace herd::draw {

// About `wanted` multiples of 1, 2 or 5 times a power of ten within [low, high]. Empty if there is no such range.
std::vector<double> ticks(double low, double high, int wanted);
std::string tick_label(double value);  // "0.001", "2500", "1.2e+06"

}  // namespace herd::draw
