// Defines how gradients are packed into flat buckets that are reduced as soon as they are complete.
//   Parameters go in reverse order, since backward reaches the last ones first. A bucket holds one dtype and is closed
//   when the next parameter would take it over its limit; the first bucket is small, so that reducing starts early.
//   Each parameter begins on a 64-byte line. Each bucket ends with flags: one element for each of its parameters, by
//   which a rank says that it used it, and one by which it says that a gradient is missing.
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/base/dtype.h"

namespace herd::ddp {

struct GradientShape {
  int64_t elements = 0;
  DType dtype = DType::kF32;
};

struct GradientBucket {
  DType dtype = DType::kF32;
  std::vector<int> parameters;   // indices into the shapes, in the order of the bucket
  std::vector<int64_t> offsets;  // of each of them, in elements
  int64_t elements = 0;          // with padding and flags
  int64_t num_flags() const { return static_cast<int64_t>(parameters.size()) + 1; }
  int64_t first_flag() const { return elements - num_flags(); }
  int64_t bytes() const { return elements * size_of(dtype); }
};

std::vector<GradientBucket> plan_gradient_buckets(const std::vector<GradientShape>& shapes, int64_t first_bucket_bytes,
                                                  int64_t bucket_bytes);

}  // namespace herd::ddp
