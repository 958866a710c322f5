#include <algorithm>

#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr size_t kMaxRanges = 100;  // of a launch

struct Ranges {
  DropoutRange ranges[kMaxRanges];
};

// Philox4x32 with 10 rounds (philox_stream.h).
__device__ uint4 philox(uint64_t key, uint64_t counter, uint32_t word2, uint32_t word3) {
  uint4 c = make_uint4(static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), word2, word3);
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(c.x, 0xD2511F53u), low0 = c.x * 0xD2511F53u;
    const uint32_t high1 = __umulhi(c.z, 0xCD9E8D57u), low1 = c.z * 0xCD9E8D57u;
    c = make_uint4(high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0);
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return c;
}

// A thread takes two counters of a range, the words of eight elements.
template <typename Type>
__global__ void dropout_kernel(const typename Type::Element* x, typename Type::Element* y,
                               const __grid_constant__ Ranges all, uint32_t layer, uint32_t site, uint32_t threshold,
                               float scale, bool aligned) {
  const DropoutRange& range = all.ranges[blockIdx.y];
  const int64_t end = range.first + range.count;
  const int64_t eight =
      range.first / kEight * kEight + (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kEight;
  if (eight >= end) return;
  const uint4 low = philox(range.key, static_cast<uint64_t>(eight / 4), layer, site);
  const uint4 high = philox(range.key, static_cast<uint64_t>(eight / 4 + 1), layer, site);
  const uint32_t words[kEight] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const int64_t at = range.at + eight - range.first;
  if (eight >= range.first && eight + kEight <= end) {
    const bool whole = aligned && at % kEight == 0;
    float values[kEight];
    load_eight<Type>(x + at, kEight, whole, values);
#pragma unroll
    for (int k = 0; k < kEight; ++k) values[k] = words[k] >= threshold ? values[k] * scale : 0.0f;
    store_eight<Type>(values, kEight, whole, y + at);
    return;
  }
#pragma unroll
  for (int k = 0; k < kEight; ++k) {
    if (eight + k < range.first || eight + k >= end) continue;
    y[at + k] = Type::store(words[k] >= threshold ? Type::load(x[at + k]) * scale : 0.0f);
  }
}

}  // namespace

void dropout(const OnStream& on, const DropoutCall& call) {
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  int64_t drawn = 0;
  for (const DropoutRange& range : call.ranges) drawn += range.count;
  if (drawn < call.count && call.x != call.y) {
    check(cudaMemcpyAsync(call.y, call.x, static_cast<size_t>(call.count * size_of(call.type)),
                          cudaMemcpyDeviceToDevice, stream_of(on)),
          "dropout");
  }
  for (size_t begin = 0; begin < call.ranges.size(); begin += kMaxRanges) {
    const size_t size = std::min(kMaxRanges, call.ranges.size() - begin);
    Ranges ranges{};
    std::copy_n(call.ranges.begin() + static_cast<int64_t>(begin), size, ranges.ranges);
    int64_t most = 0;
    for (size_t k = 0; k < size; ++k) most = std::max(most, ranges.ranges[k].count);
    if (most == 0) continue;
    // A range that begins inside eight elements takes part of one thread's more.
    const dim3 blocks(blocks_of_eights(most + kEight), static_cast<unsigned>(size));
    with_type(call.type, [&](auto type) {
      dropout_kernel<decltype(type)>
          <<<blocks, kThreads, 0, stream_of(on)>>>(input(type, call.x), output(type, call.y), ranges, call.layer,
                                                   call.site, call.threshold, call.scale, are_aligned(call.x, call.y));
    });
    check(cudaGetLastError(), "dropout");
  }
}

}  // namespace herd::kernels::cuda
