// Places round ticks on an axis and labels them. Threads: pure.
#pragma once

#include <string>
#include <vector>

namespace herd::draw {

// Returns about `wanted` multiples of 1, 2 or 5 times a power of ten within [low, high]. Returns none if the range is
// empty or not finite.
std::vector<double> ticks(double low, double high, int wanted);
std::string tick_label(double value);  // returns "0.001", "2500" or "1.2e+06"

}  // namespace herd::draw
