// Converts vectors of bf16 and fp16 numbers, held as 16-bit patterns, to fp32 and back. They round as half.h does.
// Compiled once for each instruction set. Threads: pure.
#if defined(HERD_KERNELS_HALF_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HERD_KERNELS_HALF_LANES_INL_H_
#undef HERD_KERNELS_HALF_LANES_INL_H_
#else
#define HERD_KERNELS_HALF_LANES_INL_H_
#endif

#include "herd/kernels/half.h"

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WideTag = hn::ScalableTag<float>;
using WordTag = hn::RebindToUnsigned<WideTag>;
using HalfTag = hn::Rebind<uint16_t, WideTag>;

constexpr size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);  // most lanes that a WideTag has

struct Bf16Convert {
  template <class V>
  static HWY_INLINE auto widen(WideTag d, V bits) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), bits)));
  }
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    const WordTag d;
    const auto bits = hn::BitCast(d, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fffu)), odd));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40u));
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(v));
    const hn::RebindToSigned<WordTag> signed_d;  // DemoteTo saturates signed values; ours fit in 16 bits
    return hn::DemoteTo(HalfTag(), hn::BitCast(signed_d, hn::IfThenElse(is_nan, quiet, rounded)));
  }
};

struct Fp16Convert {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  template <class V>
  static HWY_INLINE auto widen(WideTag d, V bits) {
    HWY_ALIGN uint16_t in[HWY_MAX_BYTES / 2];
    HWY_ALIGN float out[HWY_MAX_BYTES / 4];
    hn::Store(bits, HalfTag(), in);
    for (size_t i = 0; i < hn::Lanes(d); ++i) out[i] = float_from_fp16(in[i]);
    return hn::Load(d, out);
  }
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    HWY_ALIGN float in[HWY_MAX_BYTES / 4];
    HWY_ALIGN uint16_t out[HWY_MAX_BYTES / 2];
    hn::Store(v, WideTag(), in);
    for (size_t i = 0; i < hn::Lanes(WideTag()); ++i) out[i] = fp16_from_float(in[i]);
    return hn::Load(HalfTag(), out);
  }
#else
  using Float16Tag = hn::Rebind<hwy::float16_t, WideTag>;
  template <class V>
  static HWY_INLINE auto widen(WideTag d, V bits) {
    return hn::PromoteTo(d, hn::BitCast(Float16Tag(), bits));
  }
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    return hn::BitCast(HalfTag(), hn::DemoteTo(Float16Tag(), v));
  }
#endif
};

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
