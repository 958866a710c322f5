#include "herd/draw/unit.h"

#include <cmath>
#include <span>
#include <utility>

namespace herd::draw {
namespace {

using Step = std::pair<double, const char*>;
constexpr Step kBytesSteps[] = {{1, "B"}, {0x1p10, "KiB"}, {0x1p20, "MiB"}, {0x1p30, "GiB"}, {0x1p40, "TiB"}};
constexpr Step kTimeSteps[] = {{1, "us"}, {1e3, "ms"}, {1e6, "s"}, {6e7, "min"}, {3.6e9, "h"}};
constexpr Step kCountSteps[] = {{1, ""}, {1e3, "K"}, {1e6, "M"}, {1e9, "B"}, {1e12, "T"}};

std::span<const Step> steps_of(Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return kBytesSteps;
    case Unit::kMicroseconds:
      return kTimeSteps;
    case Unit::kCount:
      return kCountSteps;
    case Unit::kPlain:
      break;
  }
  return {};
}

}  // namespace

UnitScale scale_of(Unit unit, double largest) {
  UnitScale scale;
  for (const auto& [divisor, suffix] : steps_of(unit)) {
    // Two minutes are 120 s: the next unit begins where it counts to two.
    const double from = unit == Unit::kMicroseconds && divisor >= 6e7 ? 2 * divisor : divisor;
    if (scale.suffix.empty() || std::fabs(largest) >= from) scale = {divisor, suffix};
  }
  return scale;
}

}  // namespace herd::draw
