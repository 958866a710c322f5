#include <bit>
#include <cmath>
#include <cstring>

#include "herd/kernels/finite.h"
#include "herd/kernels/hash.h"
#include "herd/kernels/simd_internal.h"
#include "herd/kernels/sum_of_squares.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/scan.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

#ifndef HERD_KERNELS_SCAN_LANES
#define HERD_KERNELS_SCAN_LANES
namespace herd::kernels {

constexpr size_t kSumLanes = 16;
constexpr size_t kHashLanes = 32;
constexpr uint32_t kWordMultiplier = 0x9e3779b1u, kLaneMultiplier = 0x85ebca77u;  // odd, bits well mixed

}  // namespace herd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Adds num blocks of 16 values to sums[16].
void add_squares(const float* values, int64_t num, double* sums) {
  using Tag = hn::CappedTag<double, kSumLanes / 2>;
  constexpr size_t kWidth = hn::MaxLanes(Tag()), kVectors = kSumLanes / kWidth;
  const Tag d;
  const hn::Rebind<float, Tag> narrow;
  decltype(hn::Zero(d)) sum[kVectors];
  for (size_t k = 0; k < kVectors; ++k) sum[k] = hn::LoadU(d, sums + k * kWidth);
  for (; num > 0; --num, values += kSumLanes) {
    for (size_t k = 0; k < kVectors; ++k) {
      const auto x = hn::PromoteTo(d, hn::LoadU(narrow, values + k * kWidth));
      sum[k] = hn::Add(sum[k], hn::Mul(x, x));
    }
  }
  for (size_t k = 0; k < kVectors; ++k) hn::StoreU(sum[k], d, sums + k * kWidth);
}

// Mixes num blocks of 32 words into lanes[32].
void mix_words(const void* memory, int64_t num, uint32_t* lanes) {
  using Tag = hn::CappedTag<uint32_t, kHashLanes / 2>;
  constexpr size_t kWidth = hn::MaxLanes(Tag()), kVectors = kHashLanes / kWidth;
  const Tag d;
  const auto* from = static_cast<const uint8_t*>(memory);
  const auto word_multiplier = hn::Set(d, kWordMultiplier), lane_multiplier = hn::Set(d, kLaneMultiplier);
  decltype(hn::Zero(d)) lane[kVectors];
  for (size_t k = 0; k < kVectors; ++k) lane[k] = hn::LoadU(d, lanes + k * kWidth);
  for (; num > 0; --num, from += 4 * kHashLanes) {
    for (size_t k = 0; k < kVectors; ++k) {
      uint32_t words[kWidth];  // copied with memcpy: the memory may be aligned to bytes only
      std::memcpy(words, from + 4 * k * kWidth, sizeof(words));
      const auto mixed = hn::Add(lane[k], hn::Mul(hn::LoadU(d, words), word_multiplier));
      lane[k] = hn::Mul(hn::Or(hn::ShiftLeft<15>(mixed), hn::ShiftRight<17>(mixed)), lane_multiplier);
    }
  }
  for (size_t k = 0; k < kVectors; ++k) hn::StoreU(lane[k], d, lanes + k * kWidth);
}

// Returns the start of the first whole vector that holds a value which is not finite. Returns the end of the whole
// vectors if none does; the caller checks the values after it one by one.
int64_t first_suspect(const float* values, int64_t num) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const auto exponent = hn::Set(bits, 0x7f800000u);
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= num; i += width) {
    const auto all_ones = hn::Eq(hn::And(hn::BitCast(bits, hn::LoadU(d, values + i)), exponent), exponent);
    if (!hn::AllFalse(bits, all_ones)) return i;
  }
  return i;
}

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace herd::kernels {

HWY_EXPORT(add_squares);
HWY_EXPORT(mix_words);
HWY_EXPORT(first_suspect);

double sum_of_squares(const float* values, int64_t count) {
  constexpr auto kLanes = static_cast<int64_t>(kSumLanes);
  double sums[kSumLanes] = {};
  float rest[kSumLanes] = {};
  HWY_DYNAMIC_DISPATCH(add_squares)(values, count / kLanes, sums);
  if (count % kLanes != 0) {
    std::memcpy(rest, values + count / kLanes * kLanes, static_cast<size_t>(count % kLanes) * sizeof(float));
    HWY_DYNAMIC_DISPATCH(add_squares)(rest, 1, sums);
  }
  for (size_t half = kSumLanes / 2; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

int64_t first_non_finite(const float* values, int64_t count) {
  for (int64_t i = HWY_DYNAMIC_DISPATCH(first_suspect)(values, count); i < count; ++i)
    if (!std::isfinite(values[i])) return i;
  return -1;
}

namespace {

// The finaliser of splitmix64 (Steele et al. 2014, doi:10.1145/2660193.2660195): a bijection of 64 bits.
uint64_t finalise(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

uint64_t hash(const void* memory, int64_t bytes, uint64_t seed) {
  constexpr int64_t kBlock = 4 * static_cast<int64_t>(kHashLanes);
  uint32_t lanes[kHashLanes], rest[kHashLanes] = {};
  for (size_t k = 0; k < kHashLanes; ++k) lanes[k] = static_cast<uint32_t>(finalise(seed + k));
  HWY_DYNAMIC_DISPATCH(mix_words)(memory, bytes / kBlock, lanes);
  if (bytes % kBlock != 0) {
    std::memcpy(rest, static_cast<const char*>(memory) + bytes / kBlock * kBlock, static_cast<size_t>(bytes % kBlock));
    HWY_DYNAMIC_DISPATCH(mix_words)(rest, 1, lanes);
  }
  uint64_t result = finalise(static_cast<uint64_t>(bytes) ^ seed);
  for (uint32_t lane : lanes) result = finalise(result ^ lane) * 0x9e3779b97f4a7c15u;
  return result;
}

}  // namespace herd::kernels
#endif
