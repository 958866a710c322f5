// Sums over the threads of a block, in a fixed order: a tree in each warp, then one over the warps.
#pragma once

#include <cuda_runtime.h>

namespace herd::kernels::cuda {

// Returns the sum in every thread of the block, which has whole warps. `shared` has 32 places; all threads must be past
// their last read of it before the next call.
template <typename T>
__device__ T block_sum(T value, T* shared) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffffu, value, half);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = lane < warps ? shared[lane] : T{};
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffffu, value, half);
  return value;
}

}  // namespace herd::kernels::cuda
