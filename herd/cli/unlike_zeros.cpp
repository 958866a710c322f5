#include "herd/cli/unlike_zeros.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace herd::cli {
namespace {

constexpr int64_t kStretchBytes = 16 << 10;

// Floats between 0.5 and 1 of no pattern that a line, or a page, repeats.
std::array<float, kStretchBytes / 4> stretch() {
  std::array<float, kStretchBytes / 4> values{};
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = 0.5f + static_cast<float>(state >> 8) / static_cast<float>(1u << 25);
  }
  return values;
}

}  // namespace

void fill_unlike_zeros(std::byte* to, int64_t bytes) {
  static const auto kStretch = stretch();
  for (int64_t done = 0; done < bytes; done += kStretchBytes) {
    std::memcpy(to + done, kStretch.data(), static_cast<size_t>(std::min(kStretchBytes, bytes - done)));
  }
}

}  // namespace herd::cli
