// Tensors of bf16 that are the upper halves of fp32 numbers, beside tensors of their lower halves
// (herd/kernels/split_float_kernel.h). So weights are kept once: models compute with the upper halves, which are the
// fp32 weights rounded, and updates and checkpoints have both. All tensors: contiguous, on the CPU, of as many
// elements; bf16 `high`, int16 `low`, fp32 `exact`.   Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd {

void split_float(const at::Tensor& exact, const at::Tensor& high, const at::Tensor& low);
void upper_half(const at::Tensor& exact, const at::Tensor& high);  // split_float() without the lower halves
void join_float(const at::Tensor& high, const at::Tensor& low, const at::Tensor& exact);

}  // namespace herd
