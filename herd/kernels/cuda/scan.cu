#include <algorithm>

#include "herd/kernels/cuda/block_sum.cuh"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr int kSumThreads = 512;
constexpr int kClipSums = 1024;  // that the clip reads at a time

// A block sums a run of eights: each thread every kSumThreads-th of them, then the threads in a tree.
template <typename Type>
__global__ void sum_of_squares_kernel(const typename Type::Element* values, int64_t count, double* parts,
                                      bool aligned) {
  __shared__ double shared[32];
  const int64_t eights = (count + kEight - 1) / kEight;
  const int64_t begin = eights * blockIdx.x / gridDim.x, end = eights * (blockIdx.x + 1) / gridDim.x;
  double sum = 0;
#pragma unroll 2
  for (int64_t eight = begin + threadIdx.x; eight < end; eight += kSumThreads) {
    const int64_t i = eight * kEight;
    float x[kEight];
    load_eight<Type>(values + i, static_cast<int>(count - i < kEight ? count - i : int64_t{kEight}), aligned, x);
#pragma unroll
    for (int k = 0; k < kEight; ++k) sum = fma(static_cast<double>(x[k]), static_cast<double>(x[k]), sum);
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void add_sums_kernel(const double* parts, int64_t count, double* sum) {
  __shared__ double shared[32];
  double mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) mine += parts[i];
  mine = block_sum(mine, shared);
  if (threadIdx.x == 0) *sum += mine;
}

// The index begins as -1, which is the largest of all without a sign.
template <typename Type>
__global__ void first_non_finite_kernel(const typename Type::Element* values, int64_t count, int64_t* index,
                                        bool aligned) {
  int n;
  const int64_t i = my_eight(count, n);
  float x[kEight];
  load_eight<Type>(values + i, n, aligned, x);
  int found = kEight;
#pragma unroll
  for (int k = kEight - 1; k >= 0; --k)
    if ((__float_as_uint(x[k]) & 0x7f800000u) == 0x7f800000u) found = k;
  if (found < n) atomicMin(reinterpret_cast<unsigned long long*>(index), static_cast<unsigned long long>(i + found));
}

__device__ uint64_t finalise(uint64_t x) {  // as herd/kernels/scan.cpp
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// One warp, a lane for each of the 32 states: each word of a state needs the one before it.
__global__ void hash_kernel(const uint8_t* memory, int64_t bytes, uint64_t seed, uint64_t* result) {
  constexpr int kAhead = 16;
  const int lane = threadIdx.x;
  const auto* words = reinterpret_cast<const uint32_t*>(memory) + lane;
  uint32_t state = static_cast<uint32_t>(finalise(seed + lane));
  const auto mix = [&state](uint32_t word) {
    const uint32_t mixed = state + word * 0x9e3779b1u;
    state = (mixed << 15 | mixed >> 17) * 0x85ebca77u;
  };
  const int64_t blocks = bytes / 128;
  int64_t block = 0;
  uint32_t ahead[kAhead];
  if (blocks >= kAhead) {  // the words of the next steps are on their way while these are mixed
#pragma unroll
    for (int k = 0; k < kAhead; ++k) ahead[k] = words[k * 32];
    for (; block + 2 * kAhead <= blocks; block += kAhead) {
      uint32_t next[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) next[k] = words[(block + kAhead + k) * 32];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) mix(ahead[k]);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) ahead[k] = next[k];
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) mix(ahead[k]);
    block += kAhead;
  }
  for (; block < blocks; ++block) mix(words[block * 32]);
  if (bytes % 128 != 0) {
    uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const int64_t at = blocks * 128 + lane * 4 + k;
      if (at < bytes) word |= static_cast<uint32_t>(memory[at]) << (8 * k);
    }
    mix(word);
  }
  uint64_t all = finalise(static_cast<uint64_t>(bytes) ^ seed);
  for (int k = 0; k < 32; ++k) all = finalise(all ^ __shfl_sync(0xffffffffu, state, k)) * 0x9e3779b97f4a7c15u;
  if (lane == 0) *result = all;
}

// One block: the sums are added one by one, as on the CPU, from where all threads have brought them to.
__global__ void clip_kernel(const double* sums, int64_t count, double max_norm, double loss_scale, bool skips_overflow,
                            double* norm_result, float* factor_result) {
  __shared__ double shared[kClipSums];
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kClipSums) {
    const int64_t size = count - begin < kClipSums ? count - begin : int64_t{kClipSums};
    __syncthreads();
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) shared[i] = sums[begin + i];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int64_t i = 0; i < size; ++i) sum += shared[i];
  }
  if (threadIdx.x != 0) return;
  if (skips_overflow && !isfinite(sum)) {
    *norm_result = sqrt(sum);
    *factor_result = -1;
    return;
  }
  const double norm = sqrt(sum / (loss_scale * loss_scale));
  float factor = 1;
  if (max_norm > 0 && isfinite(norm)) {
    const double clipped = max_norm / (norm + 1e-6);
    factor = static_cast<float>(clipped < 1.0 ? clipped : 1.0);
  }
  *norm_result = norm;
  *factor_result = static_cast<float>(factor / loss_scale);
}

}  // namespace

void sum_of_squares(const OnStream& on, const SumOfSquaresCall& call) {
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(kSumParts, ceil_div(call.count, int64_t{kEight} * kSumThreads)));
  with_type(call.type, [&](auto type) {
    sum_of_squares_kernel<decltype(type)><<<blocks, kSumThreads, 0, stream_of(on)>>>(
        input(type, call.values), call.count, call.parts, are_aligned(call.values));
  });
  check(cudaGetLastError(), "sum_of_squares");
  add_sums_kernel<<<1, kSumThreads, 0, stream_of(on)>>>(call.parts, blocks, call.sum);
  check(cudaGetLastError(), "sum_of_squares");
}

void first_non_finite(const OnStream& on, const FirstNonFiniteCall& call) {
  const CurrentDevice current(on.device);
  check(cudaMemsetAsync(call.index, 0xff, sizeof(int64_t), stream_of(on)), "first_non_finite");
  if (call.count == 0) return;
  with_type(call.type, [&](auto type) {
    first_non_finite_kernel<decltype(type)><<<blocks_of_eights(call.count), kThreads, 0, stream_of(on)>>>(
        input(type, call.values), call.count, call.index, are_aligned(call.values));
  });
  check(cudaGetLastError(), "first_non_finite");
}

void hash(const OnStream& on, const HashCall& call) {
  const CurrentDevice current(on.device);
  hash_kernel<<<1, 32, 0, stream_of(on)>>>(static_cast<const uint8_t*>(call.memory), call.bytes, call.seed,
                                           call.result);
  check(cudaGetLastError(), "hash");
}

void clip(const OnStream& on, const ClipCall& call) {
  const CurrentDevice current(on.device);
  clip_kernel<<<1, 256, 0, stream_of(on)>>>(call.sums, call.count, call.max_norm, call.loss_scale, call.skips_overflow,
                                            call.norm, call.factor);
  check(cudaGetLastError(), "clip");
}

}  // namespace herd::kernels::cuda
