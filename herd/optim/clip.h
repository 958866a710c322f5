// Clips by the global norm, in pieces, so that each piece runs where its data lies:
//   local   sum_of_squares(g) of each group's gradient or shard, in fp64; they add up over groups and over the ranks
//           that hold different elements (never over replicas)
//   global  norm = sqrt(sum);  factor = min(1, max_norm / (norm + 1e-6));  the step multiplies the gradient by it
// The norm is that of the whole gradient, whatever the layout; it is NaN or infinite where the gradient is.
// Source: Pascanu et al. 2013, arXiv:1211.5063, algorithm 1.   Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd::optim {

double sum_of_squares(const at::Tensor& gradient);  // REQUIRES a floating, contiguous tensor on the CPU

// Returns the same as fp64 in one element on the gradient's device, without waiting for it.
at::Tensor sum_of_squares_on_device(const at::Tensor& gradient);

struct Clip {
  double norm = 0;
  float factor = 1;
};

// max_norm 0 means no clipping; the result has the norm all the same. A norm that is not finite gives factor 1: the
// caller stops or skips.
Clip clip_by_norm(double sum_of_squares, double max_norm);

}  // namespace herd::optim
