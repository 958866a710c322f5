#include "herd/data/sample_order.h"

#include "herd/base/check.h"
#include "herd/data/random_bits.h"

namespace herd {
namespace {

constexpr int kRounds = 6;  // of the Feistel network

// Permutes the numbers of 2 * half_bits bits by a Feistel network with the key.
uint64_t permute(uint64_t x, uint64_t key, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = x >> half_bits, right = x & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (mix_bits(key ^ mix_bits(right + (round << 56))) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

SampleOrder::SampleOrder(int64_t windows, uint64_t seed) : windows_(windows), seed_(seed) {
  HERD_CHECK_GE(windows, 1);
  HERD_CHECK_LT(windows, int64_t{1} << 62);
  while ((int64_t{1} << (2 * half_bits_)) < windows) ++half_bits_;
}

int64_t SampleOrder::window_of(int64_t sample) const {
  HERD_CHECK_GE(sample, 0);
  const uint64_t key = mix_bits(mix_bits(seed_) + static_cast<uint64_t>(sample / windows_));
  auto x = static_cast<uint64_t>(sample % windows_);
  // Numbers beyond the windows are permuted again until they fall among them.
  do {
    x = permute(x, key, half_bits_);
  } while (x >= static_cast<uint64_t>(windows_));
  return static_cast<int64_t>(x);
}

}  // namespace herd
