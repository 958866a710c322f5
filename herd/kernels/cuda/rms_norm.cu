#include <algorithm>

#include "herd/kernels/cuda/block_sum.cuh"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

// Returns how many of the eight elements from i on a row of `width` has.
__device__ int eight_of_row(int64_t i, int64_t width) {
  return static_cast<int>(width - i < kEight ? width - i : int64_t{kEight});
}

// A block normalises a row.
template <typename Type>
__global__ void rms_norm_kernel(int64_t width, const typename Type::Element* x, const typename Type::Element* residual,
                                const typename Type::Element* gain, float epsilon, typename Type::Element* sum,
                                typename Type::Element* y, float* r, bool aligned) {
  __shared__ float shared[32];
  const int64_t row = blockIdx.x, step = static_cast<int64_t>(blockDim.x) * kEight;
  const typename Type::Element* from = x + row * width;
  float squares = 0;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * kEight; i < width; i += step) {
    const int n = eight_of_row(i, width);
    float values[kEight];
    load_eight<Type>(from + i, n, aligned, values);
    if (residual != nullptr) {
      float more[kEight];
      load_eight<Type>(residual + row * width + i, n, aligned, more);
#pragma unroll
      for (int k = 0; k < kEight; ++k) values[k] = Type::load(Type::store(values[k] + more[k]));
      store_eight<Type>(values, n, aligned, sum + row * width + i);
    }
#pragma unroll
    for (int k = 0; k < kEight; ++k) squares += values[k] * values[k];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, shared) / static_cast<float>(width) + epsilon);
  if (threadIdx.x == 0) r[row] = scale;
  if (residual != nullptr) from = sum + row * width;  // each thread reads what it has written
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * kEight; i < width; i += step) {
    const int n = eight_of_row(i, width);
    float values[kEight], gains[kEight];
    load_eight<Type>(from + i, n, aligned, values);
    load_eight<Type>(gain + i, n, aligned, gains);
#pragma unroll
    for (int k = 0; k < kEight; ++k) values[k] = values[k] * scale * gains[k];
    store_eight<Type>(values, n, aligned, y + row * width + i);
  }
}

// A block takes a run of rows, one after the other. Each thread has the same columns in every row, kKept eights of
// them, and keeps the sums of their dgain in registers. kKept = 0 keeps them in `parts`, for the widest rows.
template <typename Type, int kKept>
__global__ void rms_norm_backward_kernel(int64_t rows, int64_t width, const typename Type::Element* dy,
                                         const typename Type::Element* x, const typename Type::Element* gain,
                                         const typename Type::Element* dsum, const float* r, typename Type::Element* dx,
                                         float* parts, bool aligned) {
  __shared__ float shared[2][32];
  const int64_t part = blockIdx.x, num_parts = gridDim.x;
  const int64_t begin = rows * part / num_parts, end = rows * (part + 1) / num_parts;
  const int64_t mine = static_cast<int64_t>(threadIdx.x) * kEight, step = static_cast<int64_t>(blockDim.x) * kEight;
  float kept[kKept == 0 ? 1 : kKept][kEight] = {};
  if (kKept == 0 && parts != nullptr)
    for (int64_t i = mine; i < width; i += step)
      for (int k = 0; k < eight_of_row(i, width); ++k) parts[part * width + i + k] = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * width;
    float dot = 0;
    for (int64_t i = mine; i < width; i += step) {
      const int n = eight_of_row(i, width);
      float d[kEight], v[kEight], g[kEight];
      load_eight<Type>(dy + at + i, n, aligned, d);
      load_eight<Type>(x + at + i, n, aligned, v);
      load_eight<Type>(gain + i, n, aligned, g);
#pragma unroll
      for (int k = 0; k < kEight; ++k) dot += d[k] * g[k] * v[k];
    }
    dot = block_sum(dot, shared[row % 2]);
    const float scale = r[row], correction = scale * scale * scale * (dot / static_cast<float>(width));
#pragma unroll
    for (int64_t i = mine, c = 0; kKept == 0 ? i < width : c < kKept; i += step, ++c) {
      if (i >= width) break;
      const int n = eight_of_row(i, width);
      float d[kEight], v[kEight], g[kEight], around[kEight] = {};
      load_eight<Type>(dy + at + i, n, aligned, d);
      load_eight<Type>(x + at + i, n, aligned, v);
      load_eight<Type>(gain + i, n, aligned, g);
      if (dsum != nullptr) load_eight<Type>(dsum + at + i, n, aligned, around);
#pragma unroll
      for (int k = 0; k < kEight; ++k) {
        const float term = d[k] * v[k] * scale;
        if constexpr (kKept > 0) {
          kept[c][k] += term;
        } else if (parts != nullptr && k < n) {
          parts[part * width + i + k] += term;
        }
        d[k] = d[k] * g[k] * scale - v[k] * correction;
        if (dsum != nullptr) d[k] = Type::load(Type::store(d[k])) + around[k];
      }
      store_eight<Type>(d, n, aligned, dx + at + i);
    }
  }
  if constexpr (kKept > 0) {
    if (parts == nullptr) return;
#pragma unroll
    for (int c = 0; c < kKept; ++c) {
      const int64_t i = mine + c * step;
#pragma unroll
      for (int k = 0; k < kEight; ++k)
        if (i + k < width) parts[part * width + i + k] = kept[c][k];
    }
  }
}

// A block of 32 x 32 threads adds up 32 columns: each row of threads every 32nd part, then one thread the 32 sums.
__global__ void sum_parts_kernel(const float* parts, int64_t num_parts, int64_t width, float* sums) {
  __shared__ float shared[32][33];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < width)
    for (int64_t part = threadIdx.y; part < num_parts; part += 32) sum += parts[part * width + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int k = 1; k < 32; ++k) sum += shared[k][threadIdx.x];
  sums[column] = sum;
}

// Returns the threads of a block for rows of this width: whole warps.
int threads_of_row(int64_t width, int64_t most) {
  return static_cast<int>(std::min(most, 32 * std::max<int64_t>(1, ceil_div(ceil_div(width, kEight), 32))));
}

}  // namespace

void rms_norm(const OnStream& on, const RmsNormCall& call) {
  if (call.rows == 0 || call.width == 0) return;
  const CurrentDevice current(on.device);
  const bool aligned = call.width % kEight == 0 && are_aligned(call.x, call.residual, call.gain, call.sum, call.y);
  with_type(call.type, [&](auto type) {
    rms_norm_kernel<decltype(type)>
        <<<static_cast<unsigned>(call.rows), threads_of_row(call.width, 512), 0, stream_of(on)>>>(
            call.width, input(type, call.x), input(type, call.residual), input(type, call.gain), call.epsilon,
            output(type, call.sum), output(type, call.y), call.r, aligned);
  });
  check(cudaGetLastError(), "rms_norm");
}

void rms_norm_backward(const OnStream& on, const RmsNormBackwardCall& call) {
  if (call.width == 0) return;
  const CurrentDevice current(on.device);
  float* const parts = call.dgain == nullptr ? nullptr : call.parts;
  const bool aligned = call.width % kEight == 0 && are_aligned(call.dy, call.x, call.gain, call.dsum, call.dx);
  const int threads = threads_of_row(call.width, 512);
  const int64_t eights = ceil_div(call.width, int64_t{threads} * kEight);
  const auto blocks = static_cast<unsigned>(call.num_parts);
  with_type(call.type, [&](auto type) {
    using Type = decltype(type);
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, threads, 0, stream_of(on)>>>(call.rows, call.width, input(type, call.dy), input(type, call.x),
                                                    input(type, call.gain), input(type, call.dsum), call.r,
                                                    output(type, call.dx), parts, aligned);
    };
    if (eights == 1)
      launch(rms_norm_backward_kernel<Type, 1>);
    else if (eights == 2)
      launch(rms_norm_backward_kernel<Type, 2>);
    else if (eights <= 4)
      launch(rms_norm_backward_kernel<Type, 4>);
    else
      launch(rms_norm_backward_kernel<Type, 0>);
  });
  check(cudaGetLastError(), "rms_norm_backward");
  if (parts == nullptr) return;
  sum_parts_kernel<<<static_cast<unsigned>(ceil_div(call.width, 32)), dim3(32, 32), 0, stream_of(on)>>>(
      parts, call.num_parts, call.width, call.dgain);
  check(cudaGetLastError(), "rms_norm_backward");
}

}  // namespace herd::kernels::cuda
