#include "herd/kernels/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/top_k.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the start of the first whole vector from `from` on that holds a magnitude of at least `threshold`, or the end
// of the whole vectors.
int64_t next_vector_with(const float* values, int64_t from, int64_t count, int32_t threshold) {
  const hn::ScalableTag<int32_t> d;
  const hn::RebindToFloat<decltype(d)> floats;
  const auto magnitude = hn::Set(d, 0x7fffffff), below = hn::Set(d, threshold - 1);
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = from;
  for (; i + width <= count; i += width) {
    const auto keys = hn::And(hn::BitCast(d, hn::LoadU(floats, values + i)), magnitude);
    if (!hn::AllFalse(d, hn::Gt(keys, below))) return i;
  }
  return i;
}

int64_t vector_width() { return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<int32_t>())); }

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace herd::kernels {

HWY_EXPORT(next_vector_with);
HWY_EXPORT(vector_width);

namespace {

// Returns the magnitude's bit pattern, which is ordered as the magnitude is.
int32_t key_of(float value) { return static_cast<int32_t>(std::bit_cast<uint32_t>(value) & 0x7fffffffu); }

// Calls take(index) for each element whose key is at least `threshold`, by ascending index.
template <class Take>
void for_each_from(const float* values, int64_t count, int32_t threshold, const Take& take) {
  const int64_t width = HWY_DYNAMIC_DISPATCH(vector_width)();
  for (int64_t i = 0; i < count; i += width) {
    i = HWY_DYNAMIC_DISPATCH(next_vector_with)(values, i, count, threshold);
    for (int64_t j = i; j < std::min(i + width, count); ++j)
      if (key_of(values[j]) >= threshold) take(j);
  }
}

// Returns the k-th largest key, most significant digits first. REQUIRES 1 <= k <= count.
int32_t kth_key(const float* values, int64_t count, int64_t k) {
  struct Digit {
    int shift, bits;
  };
  uint32_t prefix = 0;
  int prefix_shift = 31;
  for (const Digit digit : {Digit{19, 12}, Digit{8, 11}, Digit{0, 8}}) {
    std::array<int64_t, 4096> counts = {};
    const uint32_t mask = (1u << digit.bits) - 1;
    for (int64_t i = 0; i < count; ++i) {
      const auto key = static_cast<uint32_t>(key_of(values[i]));
      if (key >> prefix_shift == prefix) ++counts[key >> digit.shift & mask];
    }
    uint32_t value = mask;
    while (counts[value] < k) k -= counts[value--];
    prefix = prefix << digit.bits | value;
    prefix_shift = digit.shift;
  }
  return static_cast<int32_t>(prefix);
}

// Returns a key that at least k elements very probably reach, and not many more: the quantile of a sample, with three
// standard deviations of room.
int32_t sampled_key(const float* values, int64_t count, int64_t k) {
  constexpr int64_t kSample = 1 << 15;
  const int64_t stride = count / kSample;
  std::vector<int32_t> sample(static_cast<size_t>(kSample));
  for (int64_t i = 0; i < kSample; ++i) {
    // A place of its own within each stride: gradients repeat along rows, whose length may divide the stride.
    const auto offset =
        static_cast<int64_t>((static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u >> 32) % static_cast<uint64_t>(stride));
    sample[static_cast<size_t>(i)] = key_of(values[i * stride + offset]);
  }
  const double expected = static_cast<double>(k) / static_cast<double>(count) * kSample;
  const auto rank = std::min(kSample - 1, static_cast<int64_t>(expected + 3 * std::sqrt(expected) + 1));
  std::nth_element(sample.begin(), sample.begin() + rank, sample.end(), std::greater<>());
  return sample[static_cast<size_t>(rank)];
}

// Writes the elements above `threshold`, and the first of those at it until there are k.
class TopWriter {
 public:
  TopWriter(int32_t threshold, int64_t at_threshold, float* values, uint32_t* indices)
      : threshold_(threshold), at_threshold_(at_threshold), values_(values), indices_(indices) {}
  void take(float value, uint32_t index) {
    if (key_of(value) == threshold_ && at_threshold_-- <= 0) return;
    *values_++ = value;
    *indices_++ = index;
  }

 private:
  int32_t threshold_;
  int64_t at_threshold_;  // elements at the threshold that are still to be taken
  float* values_;
  uint32_t* indices_;
};

}  // namespace

void select_top_k(const float* values, int64_t count, int64_t k, float* top_values, uint32_t* top_indices) {
  if (k == 0) return;
  const int32_t threshold = kth_key(values, count, k);
  int64_t above = 0;
  for_each_from(values, count, threshold, [&](int64_t i) { above += key_of(values[i]) > threshold ? 1 : 0; });
  TopWriter top(threshold, k - above, top_values, top_indices);
  for_each_from(values, count, threshold, [&](int64_t i) { top.take(values[i], static_cast<uint32_t>(i)); });
}

void select_top_k_by_sample(const float* values, int64_t count, int64_t k, float* top_values, uint32_t* top_indices) {
  constexpr int64_t kWorthSampling = 1 << 17;
  if (count < kWorthSampling || k > count / 4) return select_top_k(values, count, k, top_values, top_indices);
  std::vector<float> candidates;
  std::vector<uint32_t> indices;
  candidates.reserve(static_cast<size_t>(2 * k));
  indices.reserve(static_cast<size_t>(2 * k));
  for_each_from(values, count, sampled_key(values, count, k), [&](int64_t i) {
    candidates.push_back(values[i]);
    indices.push_back(static_cast<uint32_t>(i));
  });
  const auto found = static_cast<int64_t>(candidates.size());
  if (found < k) return select_top_k(values, count, k, top_values, top_indices);
  select_top_k(candidates.data(), found, k, top_values, top_indices);
  for (int64_t i = 0; i < k; ++i) top_indices[i] = indices[top_indices[i]];
}

}  // namespace herd::kernels
#endif
