#include "herd/kernels/half_array.h"

#include <cstring>

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/half_array.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

#include "herd/kernels/half_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The last elements go through a padded copy and the same vector code.
template <class Convert>
void widen_all(const uint16_t* half, float* wide, int64_t count) {
  const WideTag d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(Convert::widen(d, hn::LoadU(HalfTag(), half + i)), d, wide + i);
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  uint16_t from[kMaxLanes] = {};
  float to[kMaxLanes];
  std::memcpy(from, half + i, rest * sizeof(uint16_t));
  hn::StoreU(Convert::widen(d, hn::LoadU(HalfTag(), from)), d, to);
  std::memcpy(wide + i, to, rest * sizeof(float));
}

template <class Convert>
void narrow_all(const float* wide, uint16_t* half, int64_t count) {
  const WideTag d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(Convert::narrow(hn::LoadU(d, wide + i)), HalfTag(), half + i);
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  float from[kMaxLanes] = {};
  uint16_t to[kMaxLanes];
  std::memcpy(from, wide + i, rest * sizeof(float));
  hn::StoreU(Convert::narrow(hn::LoadU(d, from)), HalfTag(), to);
  std::memcpy(half + i, to, rest * sizeof(uint16_t));
}

void widen_bf16(const uint16_t* half, float* wide, int64_t count) { widen_all<Bf16Convert>(half, wide, count); }
void widen_fp16(const uint16_t* half, float* wide, int64_t count) { widen_all<Fp16Convert>(half, wide, count); }
void narrow_bf16(const float* wide, uint16_t* half, int64_t count) { narrow_all<Bf16Convert>(wide, half, count); }
void narrow_fp16(const float* wide, uint16_t* half, int64_t count) { narrow_all<Fp16Convert>(wide, half, count); }

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "herd/base/check.h"

namespace herd::kernels {

HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_fp16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_fp16);

namespace {

bool is_bf16(DType type) {
  HERD_CHECK(type == DType::kBF16 || type == DType::kF16, "an array of 16-bit floating numbers");
  return type == DType::kBF16;
}

}  // namespace

void widen(DType type, const uint16_t* half, float* wide, int64_t count) {
  if (is_bf16(type))
    HWY_DYNAMIC_DISPATCH(widen_bf16)(half, wide, count);
  else
    HWY_DYNAMIC_DISPATCH(widen_fp16)(half, wide, count);
}

void narrow(DType type, const float* wide, uint16_t* half, int64_t count) {
  if (is_bf16(type))
    HWY_DYNAMIC_DISPATCH(narrow_bf16)(wide, half, count);
  else
    HWY_DYNAMIC_DISPATCH(narrow_fp16)(wide, half, count);
}

}  // namespace herd::kernels
#endif
