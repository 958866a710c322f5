// Splits fp32 tensors into bf16 tensors of their upper halves and int16 tensors of their lower halves, and joins them
// (herd/kernels/split_float_kernel.h). So weights are kept once: models compute with the upper halves, which are the
// fp32 weights rounded, and updates and checkpoints use both. All tensors are contiguous, lie on one device and have
// the same number of elements: `exact` is fp32, `high` bf16, `low` int16.   Others throw kBug.   Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd {

// Writes `high` and `low`.
void split_float(const at::Tensor& exact, const at::Tensor& high, const at::Tensor& low);
// Writes `high` alone: the numbers rounded to bf16 as split_float() rounds them.
void round_to_upper_half(const at::Tensor& exact, const at::Tensor& high);
// Writes `exact`, bit by bit the numbers that were split.
void join_float(const at::Tensor& high, const at::Tensor& low, const at::Tensor& exact);

}  // namespace herd
