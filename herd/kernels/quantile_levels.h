// Chooses the levels of a codec from the distribution of what it encodes. An element is sign * level * amax, where amax
// is the largest magnitude of its block, and m = |x| / amax lies in [0, 1].
//   Levels are quantiles of the density 1/4 + 3/4 * p(m)^(1/3) / sum, with p the density of m. The cube root gives the
//   least mean square error for many levels; the constant bounds the error of any value, whatever the distribution is.
//   level[0] = 0, level[last] = 1.  Error at most 2 / (number of levels - 1) * amax, and half of a bin.
// Source: Panter & Dite 1951, doi:10.1109/JRPROC.1951.230419.   Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace herd::kernels {

constexpr int64_t kLevelBins = 4096;  // bins of [0, 1] by which the level of a magnitude is found

// Writes ascending levels for the magnitudes of `values`, whose blocks have these maxima. A sample at fixed places
// decides, so equal input gives equal levels. REQUIRES at least two levels.
void choose_levels(const float* values, int64_t count, int64_t block, const float* maxima, std::span<float> levels);

// For each bin, the nearest level to its middle. Bin i is around i / (kLevelBins - 1).
std::array<uint8_t, kLevelBins> nearest_levels(std::span<const float> levels);

}  // namespace herd::kernels
