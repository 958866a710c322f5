#include "herd/kernels/quantile_levels.h"

#include <algorithm>
#include <cmath>

namespace herd::kernels {

void choose_levels(const float* values, int64_t count, int64_t block, const float* maxima, std::span<float> levels) {
  constexpr int kBins = 256;
  constexpr int64_t kSample = 1 << 15;
  std::array<double, kBins> density = {};
  const int64_t stride = std::max<int64_t>(1, count / kSample) | 1;  // odd: rows have even lengths
  for (int64_t i = 0; i < count; i += stride) {
    const float amax = maxima[i / block];
    if (!(amax > 0)) continue;
    density[static_cast<size_t>(std::min<float>(kBins - 1, std::abs(values[i]) / amax * kBins))] += 1;
  }
  double sum = 0;
  for (double& bin : density) sum += bin = std::cbrt(bin);
  for (double& bin : density) bin = 0.25 / kBins + (sum > 0 ? 0.75 * bin / sum : 0.75 / kBins);

  double before = 0;  // mass of the bins before `bin`
  size_t bin = 0;
  const size_t last = levels.size() - 1;
  for (size_t i = 1; i < last; ++i) {
    const double mass = static_cast<double>(i) / static_cast<double>(last);
    while (bin + 1 < kBins && before + density[bin] < mass) before += density[bin++];
    levels[i] = static_cast<float>((static_cast<double>(bin) + (mass - before) / density[bin]) / kBins);
  }
  levels[0] = 0;
  levels[last] = 1;
}

std::array<uint8_t, kLevelBins> nearest_levels(std::span<const float> levels) {
  std::array<uint8_t, kLevelBins> nearest = {};
  size_t level = 0;
  for (int64_t i = 0; i < kLevelBins; ++i) {
    const float middle = static_cast<float>(i) / (kLevelBins - 1);
    while (level + 1 < levels.size() && middle > (levels[level] + levels[level + 1]) / 2) ++level;
    nearest[static_cast<size_t>(i)] = static_cast<uint8_t>(level);
  }
  return nearest;
}

}  // namespace herd::kernels
