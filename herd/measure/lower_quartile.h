// Returns a time that a quarter of the samples are at or below: other programs' turns on a core make samples longer,
// never shorter. Threads: pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace herd::measure {

// REQUIRES a sample.
inline double lower_quartile(std::vector<double> us) {
  const auto quarter = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 4);
  std::nth_element(us.begin(), quarter, us.end());
  return *quarter;
}

}  // namespace herd::measure
