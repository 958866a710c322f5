#include "herd/draw/axis.h"

#include <cmath>
#include <cstdio>

namespace herd::draw {

std::vector<double> ticks(double low, double high, int wanted) {
  std::vector<double> tick_values;
  if (!std::isfinite(low) || !std::isfinite(high) || !(high > low) || wanted < 1) return tick_values;
  const double rough_step = (high - low) / wanted, power = std::pow(10, std::floor(std::log10(rough_step)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough_step) {
      step = factor * power;
      break;
    }
  }
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) tick_values.push_back(k * step);
  return tick_values;
}

std::string tick_label(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", std::fabs(value) < 1e-12 ? 0.0 : value);
  return text;
}

}  // namespace herd::draw
