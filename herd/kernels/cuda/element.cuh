// Element types on the device: loads widen eight elements to fp32, stores round them to nearest even. A NaN stays one,
// but not its bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "herd/base/dtype.h"
#include "herd/kernels/cuda/launch.cuh"

namespace herd::kernels::cuda {

struct Fp32 {
  using Element = float;
  __device__ static float load(float value) { return value; }
  __device__ static float store(float value) { return value; }
};
struct Bf16 {
  using Element = uint16_t;
  __device__ static float load(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }
  __device__ static uint16_t store(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};
struct Fp16 {
  using Element = uint16_t;
  __device__ static float load(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  __device__ static uint16_t store(float value) { return __half_as_ushort(__float2half_rn(value)); }
};

// Calls work(Type()) for the type of the elements.
template <typename Work>
void with_type(DType type, const Work& work) {
  if (type == DType::kF32) return work(Fp32());
  if (type == DType::kBF16) return work(Bf16());
  if (type == DType::kF16) return work(Fp16());
  check(cudaErrorInvalidValue, "a kernel of a type that is not fp32, bf16 or fp16");
}

// Copies n <= 8 elements, all at once where n = 8 and the memory is aligned to 16 bytes; the others become 0.
template <typename Element>
__device__ void load_raw(const Element* from, int n, bool aligned, Element (&to)[kEight]) {
  if (aligned && n == kEight) {
    const auto* words = reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof(to) / 16); ++k) reinterpret_cast<uint4*>(to)[k] = words[k];
  } else {
#pragma unroll
    for (int k = 0; k < kEight; ++k) to[k] = k < n ? from[k] : Element{};
  }
}
template <typename Element>
__device__ void store_raw(const Element (&from)[kEight], int n, bool aligned, Element* to) {
  if (aligned && n == kEight) {
    auto* words = reinterpret_cast<uint4*>(to);
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof(from) / 16); ++k) words[k] = reinterpret_cast<const uint4*>(from)[k];
  } else {
#pragma unroll
    for (int k = 0; k < kEight; ++k)
      if (k < n) to[k] = from[k];
  }
}

template <typename Type>
__device__ void load_eight(const typename Type::Element* from, int n, bool aligned, float (&to)[kEight]) {
  alignas(16) typename Type::Element raw[kEight];
  load_raw(from, n, aligned, raw);
#pragma unroll
  for (int k = 0; k < kEight; ++k) to[k] = Type::load(raw[k]);
}
template <typename Type>
__device__ void store_eight(const float (&from)[kEight], int n, bool aligned, typename Type::Element* to) {
  alignas(16) typename Type::Element raw[kEight];
#pragma unroll
  for (int k = 0; k < kEight; ++k) raw[k] = Type::store(from[k]);
  store_raw(raw, n, aligned, to);
}

template <typename Type>
const typename Type::Element* input(Type, const void* memory) {
  return static_cast<const typename Type::Element*>(memory);
}
template <typename Type>
typename Type::Element* output(Type, void* memory) {
  return static_cast<typename Type::Element*>(memory);
}

// Returns the first of this thread's eight elements, and in n how many of them exist: 8, fewer at the end, or none.
__device__ inline int64_t my_eight(int64_t count, int& n) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kEight;
  const int64_t rest = count - first;
  n = rest >= kEight ? kEight : rest > 0 ? static_cast<int>(rest) : 0;
  return first;
}

}  // namespace herd::kernels::cuda
