#include <cfloat>

#include "herd/kernels/cuda/block_sum.cuh"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr int kRowThreads = 1024;
constexpr int kLossThreads = 512;

// exp of a 16-bit logit needs no more digits than the processor's own instruction has.
template <typename Type>
__device__ float exponential(float value) {
  if constexpr (sizeof(typename Type::Element) == 4)
    return expf(value);
  else
    return __expf(value);
}

// A block takes a row: its maximum and sum in one pass, the gradient in another, which finds the row in the L2 cache.
template <typename Type>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(int64_t words, typename Type::Element* logits, const int64_t* targets, float weight,
                         bool with_gradients, double* row_losses, bool aligned) {
  __shared__ double shared_sums[32];
  __shared__ float shared_maxima[32];
  const int64_t row = blockIdx.x, target = targets[row];
  typename Type::Element* const of_row = logits + row * words;
  const int64_t mine = static_cast<int64_t>(threadIdx.x) * kEight, step = int64_t{kRowThreads} * kEight;
  const auto size_at = [words](int64_t i) {
    return static_cast<int>(words - i < kEight ? words - i : int64_t{kEight});
  };
  if (target < 0 || target >= words) {
    if (threadIdx.x == 0) row_losses[row] = 0;
    const float zeros[kEight] = {};
    if (with_gradients)
      for (int64_t i = mine; i < words; i += step) store_eight<Type>(zeros, size_at(i), aligned, of_row + i);
    return;
  }
  const float picked = Type::load(of_row[target]);  // before any thread writes its gradient
  float largest = -FLT_MAX, sum = 0;
#pragma unroll 2
  for (int64_t i = mine; i < words; i += step) {
    const int n = size_at(i);
    float x[kEight];
    load_eight<Type>(of_row + i, n, aligned, x);
    float highest = largest;
#pragma unroll
    for (int k = 0; k < kEight; ++k) highest = k < n ? fmaxf(highest, x[k]) : highest;
    sum *= exponential<Type>(largest - highest);
    largest = highest;
#pragma unroll
    for (int k = 0; k < kEight; ++k) sum += k < n ? exponential<Type>(x[k] - largest) : 0.0f;
  }
  float block_max = largest;
#pragma unroll
  for (int half = 16; half > 0; half /= 2) block_max = fmaxf(block_max, __shfl_xor_sync(0xffffffffu, block_max, half));
  if (threadIdx.x % 32 == 0) shared_maxima[threadIdx.x / 32] = block_max;
  __syncthreads();
  block_max = shared_maxima[threadIdx.x % 32];
#pragma unroll
  for (int half = 16; half > 0; half /= 2) block_max = fmaxf(block_max, __shfl_xor_sync(0xffffffffu, block_max, half));
  const double total = block_sum(static_cast<double>(sum * exponential<Type>(largest - block_max)), shared_sums);
  if (threadIdx.x == 0) row_losses[row] = static_cast<double>(block_max) + log(total) - static_cast<double>(picked);
  if (!with_gradients) return;
  const float scale = static_cast<float>(1 / total);
#pragma unroll 2
  for (int64_t i = mine; i < words; i += step) {
    const int n = size_at(i);
    float x[kEight];
    load_eight<Type>(of_row + i, n, aligned, x);
#pragma unroll
    for (int k = 0; k < kEight; ++k) {
      const float softmax = exponential<Type>(x[k] - block_max) * scale;
      x[k] = weight * (softmax - (i + k == target ? 1.0f : 0.0f));
    }
    store_eight<Type>(x, n, aligned, of_row + i);
  }
}

// One block, in an order that the number of rows fixes.
__global__ void add_losses_kernel(int64_t rows, int64_t words, const int64_t* targets, const double* row_losses,
                                  double* loss, int64_t* counted) {
  __shared__ double shared_losses[32];
  __shared__ int shared_counts[32];
  double sum = 0;
  int count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kLossThreads) {
    const bool counts = targets[row] >= 0 && targets[row] < words;
    if (counts) sum += row_losses[row];
    count += counts ? 1 : 0;
  }
  sum = block_sum(sum, shared_losses);
  count = block_sum(count, shared_counts);
  if (threadIdx.x != 0) return;
  *loss += sum;
  *counted += count;
}

}  // namespace

void cross_entropy(const OnStream& on, const CrossEntropyCall& call) {
  if (call.rows == 0 || call.words == 0) return;
  const CurrentDevice current(on.device);
  const bool aligned = are_aligned(call.logits) && call.words % kEight == 0;
  with_type(call.type, [&](auto type) {
    cross_entropy_kernel<decltype(type)><<<static_cast<unsigned>(call.rows), kRowThreads, 0, stream_of(on)>>>(
        call.words, output(type, call.logits), call.targets, call.weight, call.with_gradients, call.row_losses,
        aligned);
  });
  check(cudaGetLastError(), "cross_entropy");
  add_losses_kernel<<<1, kLossThreads, 0, stream_of(on)>>>(call.rows, call.words, call.targets, call.row_losses,
                                                           call.loss, call.counted);
  check(cudaGetLastError(), "cross_entropy");
}

}  // namespace herd::kernels::cuda
