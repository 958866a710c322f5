// Selects the k elements of largest magnitude of an fp32 array, by ascending index. Of equal magnitudes the lower
// indices win. NaN is larger than infinity, and infinity than all else. Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

// Both give the same elements. REQUIRES 0 <= k <= count < 2^32.
//   select_top_k        finds the k-th magnitude by three passes of a radix histogram.
//   select_top_k_by_sample  estimates a threshold from a sample at fixed places, collects what is above it in one pass,
//                       and selects among these. It falls back to the passes where fewer than k are above.
void select_top_k(const float* values, int64_t count, int64_t k, float* top_values, uint32_t* top_indices);
void select_top_k_by_sample(const float* values, int64_t count, int64_t k, float* top_values, uint32_t* top_indices);

}  // namespace herd::kernels
