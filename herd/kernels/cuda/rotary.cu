#include <algorithm>

#include "herd/base/error.h"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr int kMaxPairs = 256;         // of a head
constexpr int64_t kHeadsOfThread = 4;  // which share the sines and cosines

struct Frequencies {
  float values[kMaxPairs];
};

// A thread turns eight pairs of a token, in kHeadsOfThread heads.
template <typename Type>
__global__ void rotary_kernel(typename Type::Element* x, const __grid_constant__ Frequencies frequencies, int64_t batch,
                              int64_t tokens, int64_t heads, int64_t half, int64_t batch_stride, int64_t token_stride,
                              int64_t first, float sign, bool aligned) {
  const int64_t eights = (half + kEight - 1) / kEight;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = thread / eights, i = thread % eights * kEight;
  if (row >= batch * tokens) return;
  const int64_t token = row % tokens;
  const int n = static_cast<int>(half - i < kEight ? half - i : int64_t{kEight});
  float cosine[kEight], sine[kEight];
#pragma unroll
  for (int k = 0; k < kEight; ++k) {
    const float angle = static_cast<float>(first + token) * (k < n ? frequencies.values[i + k] : 0.0f);
    sincosf(angle, &sine[k], &cosine[k]);
    sine[k] *= sign;
  }
  typename Type::Element* const at = x + row / tokens * batch_stride + token * token_stride + i;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kHeadsOfThread;
  const int64_t end = begin + kHeadsOfThread < heads ? begin + kHeadsOfThread : heads;
  for (int64_t head = begin; head < end; ++head) {
    typename Type::Element* const low = at + head * 2 * half;
    float a[kEight], b[kEight];
    load_eight<Type>(low, n, aligned, a);
    load_eight<Type>(low + half, n, aligned, b);
#pragma unroll
    for (int k = 0; k < kEight; ++k) {
      const float turned = a[k] * cosine[k] - b[k] * sine[k];
      b[k] = b[k] * cosine[k] + a[k] * sine[k];
      a[k] = turned;
    }
    store_eight<Type>(a, n, aligned, low);
    store_eight<Type>(b, n, aligned, low + half);
  }
}

}  // namespace

void rotary(const OnStream& on, const RotaryCall& call) {
  const auto half = static_cast<int64_t>(call.frequencies.size());
  if (half > kMaxPairs) {
    throw Error(Code::kBadConfig, "heads of width " + std::to_string(2 * half) +
                                      ", but rotary positions on CUDA take " + std::to_string(2 * kMaxPairs) +
                                      " at most\n  fix: more heads");
  }
  const int64_t threads = call.batch * call.tokens * ceil_div(half, kEight);
  if (threads == 0 || call.heads == 0) return;
  const CurrentDevice current(on.device);
  Frequencies frequencies{};
  std::copy(call.frequencies.begin(), call.frequencies.end(), frequencies.values);
  const bool aligned =
      are_aligned(call.x) && half % kEight == 0 && call.batch_stride % kEight == 0 && call.token_stride % kEight == 0;
  const dim3 blocks(static_cast<unsigned>(ceil_div(threads, kThreads)),
                    static_cast<unsigned>(ceil_div(call.heads, kHeadsOfThread)));
  with_type(call.type, [&](auto type) {
    rotary_kernel<decltype(type)><<<blocks, kThreads, 0, stream_of(on)>>>(
        output(type, call.x), frequencies, call.batch, call.tokens, call.heads, half, call.batch_stride,
        call.token_stride, call.first, call.sign, aligned);
  });
  check(cudaGetLastError(), "rotary");
}

}  // namespace herd::kernels::cuda
