#include "herd/kernels/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/rms_norm.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

#include "herd/kernels/half_lanes-inl.h"

#ifndef HERD_KERNELS_NORM_LANES
#define HERD_KERNELS_NORM_LANES
namespace herd::kernels {

constexpr size_t kNormLanes = 16;  // partial sums of a row

}  // namespace herd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kNormWidth = hn::MaxLanes(WideTag()), kNormVectors = kNormLanes / kNormWidth;
static_assert(kNormLanes % kNormWidth == 0);

// Loads and stores vectors of an fp32 array.
struct WideLanes {
  using Element = float;
  static HWY_INLINE auto load(const float* from) { return hn::LoadU(WideTag(), from); }
  template <class V>
  static HWY_INLINE void store(V v, float* to) {
    hn::StoreU(v, WideTag(), to);
  }
};

// Loads and stores vectors of a 16-bit array as fp32.
template <class Convert>
struct HalfLanes {
  using Element = uint16_t;
  static HWY_INLINE auto load(const uint16_t* from) { return Convert::widen(WideTag(), hn::LoadU(HalfTag(), from)); }
  template <class V>
  static HWY_INLINE void store(V v, uint16_t* to) {
    hn::StoreU(Convert::narrow(v), HalfTag(), to);
  }
};

// Calls block(i, rest) for each 16 elements from i on, of which `rest` exist: 16, or fewer in the last call.
template <class Block>
HWY_INLINE void for_blocks(int64_t width, const Block& block) {
  constexpr auto kBlock = static_cast<int64_t>(kNormLanes);
  int64_t i = 0;
  for (; i + kBlock <= width; i += kBlock) block(i, kBlock);
  if (i < width) block(i, width - i);
}

// Returns 16 elements: `from` itself where all exist, else a copy of the first `rest` with zeros after them.
template <class T>
HWY_INLINE const T* padded(const T* from, int64_t rest, T (&copy)[kNormLanes]) {
  if (rest == static_cast<int64_t>(kNormLanes)) return from;
  std::fill_n(copy, kNormLanes, T{});
  std::memcpy(copy, from, static_cast<size_t>(rest) * sizeof(T));
  return copy;
}

// Lets `write` write 16 elements, of which the first `rest` get to `to`.
template <class T, class Write>
HWY_INLINE void write_padded(T* to, int64_t rest, const Write& write) {
  if (rest == static_cast<int64_t>(kNormLanes)) return write(to);
  T copy[kNormLanes];
  write(copy);
  std::memcpy(to, copy, static_cast<size_t>(rest) * sizeof(T));
}

// Adds up 16 partial sums in a tree, which leaves them changed.
HWY_INLINE float tree_sum(float* sums) {
  for (size_t half = kNormLanes / 2; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

// Returns the sum over a row of term(pointers, k), which makes a vector of the elements from k on of each array.
template <class Lanes, class Term, class... Row>
HWY_INLINE float sum_of_row(int64_t width, const Term& term, const Row*... rows) {
  const WideTag d;
  decltype(hn::Zero(d)) sum[kNormVectors];
  for (size_t k = 0; k < kNormVectors; ++k) sum[k] = hn::Zero(d);
  for_blocks(width, [&](int64_t i, int64_t rest) HWY_ATTR {
    typename Lanes::Element copies[sizeof...(Row)][kNormLanes];
    size_t array = 0;
    const typename Lanes::Element* at[] = {padded(rows + i, rest, copies[array++])...};
    for (size_t k = 0; k < kNormVectors; ++k) sum[k] = hn::Add(sum[k], term(at, k * kNormWidth));
  });
  float sums[kNormLanes];
  for (size_t k = 0; k < kNormVectors; ++k) hn::StoreU(sum[k], d, sums + k * kNormWidth);
  return tree_sum(sums);
}

template <class Lanes>
void norm_rows(int64_t rows, int64_t width, const void* x_memory, const void* gain_memory, float epsilon,
               void* y_memory, float* r) {
  using T = typename Lanes::Element;
  const WideTag d;
  const auto* gain = static_cast<const T*>(gain_memory);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = static_cast<const T*>(x_memory) + row * width;
    T* y = static_cast<T*>(y_memory) + row * width;
    const float squares = sum_of_row<Lanes>(
        width,
        [](auto& at, size_t k) HWY_ATTR {
          const auto v = Lanes::load(at[0] + k);
          return hn::Mul(v, v);
        },
        x);
    r[row] = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
    const auto scale = hn::Set(d, r[row]);
    for_blocks(width, [&](int64_t i, int64_t rest) HWY_ATTR {
      T copies[2][kNormLanes];
      const T *xs = padded(x + i, rest, copies[0]), *gains = padded(gain + i, rest, copies[1]);
      write_padded(y + i, rest, [&](T* to) HWY_ATTR {
        for (size_t k = 0; k < kNormLanes; k += kNormWidth)
          Lanes::store(hn::Mul(hn::Mul(Lanes::load(xs + k), scale), Lanes::load(gains + k)), to + k);
      });
    });
  }
}

template <class Lanes>
void norm_rows_backward(int64_t rows, int64_t width, const void* dy_memory, const void* x_memory,
                        const void* gain_memory, const float* r, void* dx_memory, float* dgain) {
  using T = typename Lanes::Element;
  const WideTag d;
  const auto* gain = static_cast<const T*>(gain_memory);
  for (int64_t row = 0; row < rows; ++row) {
    const T *dy = static_cast<const T*>(dy_memory) + row * width, *x = static_cast<const T*>(x_memory) + row * width;
    T* dx = static_cast<T*>(dx_memory) + row * width;
    const float dot = sum_of_row<Lanes>(
        width,
        [](auto& at, size_t k) HWY_ATTR {
          return hn::Mul(hn::Mul(Lanes::load(at[0] + k), Lanes::load(at[1] + k)), Lanes::load(at[2] + k));
        },
        dy, gain, x);
    const auto scale = hn::Set(d, r[row]);
    const auto correction = hn::Set(d, r[row] * r[row] * r[row] * (dot / static_cast<float>(width)));
    for_blocks(width, [&](int64_t i, int64_t rest) HWY_ATTR {
      T copies[3][kNormLanes];
      const T *dys = padded(dy + i, rest, copies[0]), *xs = padded(x + i, rest, copies[1]),
              *gains = padded(gain + i, rest, copies[2]);
      float sums_copy[kNormLanes];
      const float* sums = padded(static_cast<const float*>(dgain) + i, rest, sums_copy);
      write_padded(dgain + i, rest, [&](float* to) HWY_ATTR {
        for (size_t k = 0; k < kNormLanes; k += kNormWidth) {
          const auto term = hn::Mul(hn::Mul(Lanes::load(dys + k), Lanes::load(xs + k)), scale);
          hn::StoreU(hn::Add(hn::LoadU(d, sums + k), term), d, to + k);
        }
      });
      write_padded(dx + i, rest, [&](T* to) HWY_ATTR {
        for (size_t k = 0; k < kNormLanes; k += kNormWidth) {
          const auto direct = hn::Mul(hn::Mul(Lanes::load(dys + k), Lanes::load(gains + k)), scale);
          Lanes::store(hn::Sub(direct, hn::Mul(Lanes::load(xs + k), correction)), to + k);
        }
      });
    });
  }
}

#define HERD_NORM_OF(name, Lanes)                                                                                    \
  void norm_##name(int64_t rows, int64_t width, const void* x, const void* gain, float epsilon, void* y, float* r) { \
    norm_rows<Lanes>(rows, width, x, gain, epsilon, y, r);                                                           \
  }                                                                                                                  \
  void norm_backward_##name(int64_t rows, int64_t width, const void* dy, const void* x, const void* gain,            \
                            const float* r, void* dx, float* dgain) {                                                \
    norm_rows_backward<Lanes>(rows, width, dy, x, gain, r, dx, dgain);                                               \
  }

HERD_NORM_OF(fp32, WideLanes)
HERD_NORM_OF(bf16, HalfLanes<Bf16Convert>)
HERD_NORM_OF(fp16, HalfLanes<Fp16Convert>)
#undef HERD_NORM_OF

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "herd/base/check.h"

namespace herd::kernels {

HWY_EXPORT(norm_fp32);
HWY_EXPORT(norm_bf16);
HWY_EXPORT(norm_fp16);
HWY_EXPORT(norm_backward_fp32);
HWY_EXPORT(norm_backward_bf16);
HWY_EXPORT(norm_backward_fp16);

void rms_norm(const NormRows& shape, const void* x, const void* gain, float epsilon, void* y, float* r) {
  switch (shape.type) {
    case DType::kF32:
      return HWY_DYNAMIC_DISPATCH(norm_fp32)(shape.rows, shape.width, x, gain, epsilon, y, r);
    case DType::kBF16:
      return HWY_DYNAMIC_DISPATCH(norm_bf16)(shape.rows, shape.width, x, gain, epsilon, y, r);
    case DType::kF16:
      return HWY_DYNAMIC_DISPATCH(norm_fp16)(shape.rows, shape.width, x, gain, epsilon, y, r);
    default:
      HERD_CHECK(false, "a norm of " + std::string(dtype_name(shape.type)));
  }
}

void rms_norm_backward(const NormRows& shape, const void* dy, const void* x, const void* gain, const float* r, void* dx,
                       float* dgain) {
  switch (shape.type) {
    case DType::kF32:
      return HWY_DYNAMIC_DISPATCH(norm_backward_fp32)(shape.rows, shape.width, dy, x, gain, r, dx, dgain);
    case DType::kBF16:
      return HWY_DYNAMIC_DISPATCH(norm_backward_bf16)(shape.rows, shape.width, dy, x, gain, r, dx, dgain);
    case DType::kF16:
      return HWY_DYNAMIC_DISPATCH(norm_backward_fp16)(shape.rows, shape.width, dy, x, gain, r, dx, dgain);
    default:
      HERD_CHECK(false, "a norm of " + std::string(dtype_name(shape.type)));
  }
}

}  // namespace herd::kernels
#endif
