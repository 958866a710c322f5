#include "herd/cli/fit.h"

#include <cmath>

namespace herd::cli {
namespace {

constexpr int kTries = 20;
constexpr double kCloseEnough = 0.002;

}  // namespace

double fit(double measured, double low, double high, const std::function<double(double)>& predicted) {
  double low_off = predicted(low) - measured;
  if (low_off >= 0) return low;
  double high_off = predicted(high) - measured;
  if (high_off <= 0) return high;
  double figure = low;
  for (int tries = 0; tries < kTries; ++tries) {
    figure = low + (high - low) * (tries % 2 == 0 ? low_off / (low_off - high_off) : 0.5);
    const double off = predicted(figure) - measured;
    if (std::abs(off) <= kCloseEnough * measured) break;
    (off < 0 ? low : high) = figure;
    (off < 0 ? low_off : high_off) = off;
  }
  return figure;
}

}  // namespace herd::cli
