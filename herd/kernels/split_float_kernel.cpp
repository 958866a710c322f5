#include "herd/kernels/split_float_kernel.h"

#include <cstring>

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/split_float_kernel.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

#include "herd/kernels/half_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Splits one vector: high is the bf16 nearest to each value, low holds the lower 16 bits of its pattern.
HWY_INLINE void split_vector(const float* exact, uint16_t* high, uint16_t* low) {
  const WideTag d;
  const WordTag bits;
  const HalfTag half;
  const auto x = hn::LoadU(d, exact);
  const auto number = hn::BitCast(bits, x);
  // The addition below would carry a NaN of all ones over to zero, so the lower bits of a NaN are cleared first.
  const auto quiet = hn::And(hn::Or(number, hn::Set(bits, 0x400000u)), hn::Set(bits, 0xffff0000u));
  const auto safe = hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(x)), quiet, number);
  hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(hn::Add(safe, hn::Set(bits, 0x8000u)))), half, high);
  hn::StoreU(hn::TruncateTo(half, safe), half, low);
}

// Reverses split_vector: low counts as a signed number, which takes the rounding of high back.
HWY_INLINE void join_vector(const uint16_t* high, const uint16_t* low, float* exact) {
  const WideTag d;
  const WordTag bits;
  const hn::RebindToSigned<WideTag> signed_bits;
  const HalfTag half;
  const hn::RebindToSigned<HalfTag> signed_half;
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, high)));
  const auto lower = hn::PromoteTo(signed_bits, hn::BitCast(signed_half, hn::LoadU(half, low)));
  hn::StoreU(hn::BitCast(d, hn::Add(upper, hn::BitCast(bits, lower))), d, exact);
}

// The last elements go through a padded copy and the same vector code.
void split_all(const float* exact, uint16_t* high, uint16_t* low, int64_t count) {
  const auto width = static_cast<int64_t>(hn::Lanes(WideTag()));
  int64_t i = 0;
  for (; i + width <= count; i += width) split_vector(exact + i, high + i, low + i);
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  float from[kMaxLanes] = {};
  uint16_t upper[kMaxLanes], lower[kMaxLanes];
  std::memcpy(from, exact + i, rest * sizeof(float));
  split_vector(from, upper, lower);
  std::memcpy(high + i, upper, rest * sizeof(uint16_t));
  std::memcpy(low + i, lower, rest * sizeof(uint16_t));
}

void join_all(const uint16_t* high, const uint16_t* low, float* exact, int64_t count) {
  const auto width = static_cast<int64_t>(hn::Lanes(WideTag()));
  int64_t i = 0;
  for (; i + width <= count; i += width) join_vector(high + i, low + i, exact + i);
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  uint16_t upper[kMaxLanes] = {}, lower[kMaxLanes] = {};
  float to[kMaxLanes];
  std::memcpy(upper, high + i, rest * sizeof(uint16_t));
  std::memcpy(lower, low + i, rest * sizeof(uint16_t));
  join_vector(upper, lower, to);
  std::memcpy(exact + i, to, rest * sizeof(float));
}

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace herd::kernels {

HWY_EXPORT(split_all);
HWY_EXPORT(join_all);

void split_float(const float* exact, uint16_t* high, uint16_t* low, int64_t count) {
  HWY_DYNAMIC_DISPATCH(split_all)(exact, high, low, count);
}

void join_float(const uint16_t* high, const uint16_t* low, float* exact, int64_t count) {
  HWY_DYNAMIC_DISPATCH(join_all)(high, low, exact, count);
}

}  // namespace herd::kernels
#endif
