#include <algorithm>
#include <type_traits>

#include "herd/base/error.h"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr size_t kMaxSources = 256;

// An element type that is reduced in its own arithmetic.
template <typename T>
struct Plain {
  using Element = T;
  __device__ static T load(T value) { return value; }
  __device__ static T store(T value) { return value; }
};

struct Sources {
  int count;
  const void* memory[kMaxSources];
};

template <typename T>
__device__ T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ReduceOp::kProduct:
        return a * b;
      case ReduceOp::kMin:
        return b < a || isnan(b) ? b : a;
      case ReduceOp::kMax:
        return a < b || isnan(b) ? b : a;
      default:
        return a + b;
    }
  } else {
    using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    switch (op) {
      case ReduceOp::kProduct:
        return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
      case ReduceOp::kMin:
        return b < a ? b : a;
      case ReduceOp::kMax:
        return a < b ? b : a;
      case ReduceOp::kAnd:
        return static_cast<T>(a & b);
      case ReduceOp::kOr:
        return static_cast<T>(a | b);
      case ReduceOp::kXor:
        return static_cast<T>(a ^ b);
      default:
        return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
    }
  }
}

// A thread takes 16 bytes of each source.
template <typename Type>
__global__ void reduce_kernel(const __grid_constant__ Sources sources, int64_t count, ReduceOp op, double scale,
                              typename Type::Element* target, bool aligned) {
  using Element = typename Type::Element;
  using Wide = decltype(Type::load(Element{}));
  constexpr int kLanes = 16 / sizeof(Element);
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kLanes;
  if (i >= count) return;
  const int n = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
  const bool whole = aligned && n == kLanes;
  const auto load = [&](int source, Wide(&to)[kLanes]) {
    const auto* from = static_cast<const Element*>(sources.memory[source]) + i;
    alignas(16) Element raw[kLanes] = {};
    if (whole) {
      *reinterpret_cast<uint4*>(raw) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll
      for (int k = 0; k < kLanes; ++k)
        if (k < n) raw[k] = from[k];
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) to[k] = Type::load(raw[k]);
  };
  Wide sum[kLanes], more[kLanes];
  load(0, sum);
#pragma unroll 4
  for (int source = 1; source < sources.count; ++source) {
    load(source, more);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum[k] = combine(op, sum[k], more[k]);
  }
  alignas(16) Element raw[kLanes];
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    if constexpr (std::is_floating_point_v<Wide>)
      if (scale != 1.0) sum[k] *= static_cast<Wide>(scale);
    raw[k] = Type::store(sum[k]);
  }
  if (whole) {
    *reinterpret_cast<uint4*>(target + i) = *reinterpret_cast<const uint4*>(raw);
  } else {
#pragma unroll
    for (int k = 0; k < kLanes; ++k)
      if (k < n) target[i + k] = raw[k];
  }
}

template <typename Type>
void launch(const OnStream& on, const ReductionCall& call, const Sources& sources, bool aligned) {
  using Element = typename Type::Element;
  const int64_t threads = ceil_div(call.count, static_cast<int64_t>(16 / sizeof(Element)));
  reduce_kernel<Type><<<static_cast<unsigned>(ceil_div(threads, kThreads)), kThreads, 0, stream_of(on)>>>(
      sources, call.count, call.op, call.scale, static_cast<Element*>(call.target), aligned);
}

}  // namespace

void reduce(const OnStream& on, const ReductionCall& call) {
  check_supported(call.op, call.type);
  if (call.sources.empty() || call.sources.size() > kMaxSources) {
    throw Error(Code::kBug, "a reduction of " + std::to_string(call.sources.size()) + " arrays, but it takes 1 to " +
                                std::to_string(kMaxSources));
  }
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  Sources sources{};
  sources.count = static_cast<int>(call.sources.size());
  bool aligned = are_aligned(call.target);
  for (size_t k = 0; k < call.sources.size(); ++k) {
    sources.memory[k] = call.sources[k];
    aligned = aligned && are_aligned(call.sources[k]);
  }
  switch (call.type) {
    case DType::kF32:
      launch<Fp32>(on, call, sources, aligned);
      break;
    case DType::kF64:
      launch<Plain<double>>(on, call, sources, aligned);
      break;
    case DType::kF16:
      launch<Fp16>(on, call, sources, aligned);
      break;
    case DType::kBF16:
      launch<Bf16>(on, call, sources, aligned);
      break;
    case DType::kI8:
      launch<Plain<int8_t>>(on, call, sources, aligned);
      break;
    case DType::kU8:
    case DType::kBool:  // bytes 0 and 1
      launch<Plain<uint8_t>>(on, call, sources, aligned);
      break;
    case DType::kI16:
      launch<Plain<int16_t>>(on, call, sources, aligned);
      break;
    case DType::kU16:
      launch<Plain<uint16_t>>(on, call, sources, aligned);
      break;
    case DType::kI32:
      launch<Plain<int32_t>>(on, call, sources, aligned);
      break;
    case DType::kU32:
      launch<Plain<uint32_t>>(on, call, sources, aligned);
      break;
    case DType::kI64:
      launch<Plain<int64_t>>(on, call, sources, aligned);
      break;
    case DType::kU64:
      launch<Plain<uint64_t>>(on, call, sources, aligned);
      break;
  }
  check(cudaGetLastError(), "reduce");
}

}  // namespace herd::kernels::cuda
