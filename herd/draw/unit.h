// Writes values of one unit for an axis: the same prefix for all its ticks. Threads: pure.
#pragma once

#include <string>

namespace herd::draw {

enum class Unit : unsigned char { kPlain, kBytes, kMicroseconds, kCount };

struct UnitScale {
  double divisor = 1;
  std::string suffix = {};  // "GiB", "ms", "M"; empty = none
};

// Returns the scale that people read a value of this size in: 1.6e11 bytes are 150 GiB, 4e7 us are 40 s.
UnitScale scale_of(Unit unit, double largest);

}  // namespace herd::draw
