// Takes the mean of the middle half of measured values. It ignores a stall as the median does, and is steadier where a
// machine changes between two speeds, of which a median takes one.   Threads: pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace herd {

// Returns the mean without the floor(n / 4) smallest and as many of the largest values; NaN where there are no values.
inline double midmean(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  const auto kept = static_cast<double>(values.size()) - 2.0 * static_cast<double>(cut);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) / kept;
}

}  // namespace herd
