// Computes RMSNorm of rows of `width` elements, which are fp32, bf16 or fp16. Arithmetic and sums are fp32; between
// forward and backward only r is kept, one number a row.
//   forward    r = 1 / sqrt(mean(x^2) + epsilon),  y = x * r * gain
//   backward   dx = r * dy * gain - x * r^3 * mean(dy * gain * x),  dgain += dy * x * r
// In a sum over a row, element i goes to partial sum i mod 16, and the 16 are added pairwise. So the bits are the same
// in every run, at any alignment and on every instruction set. y may be x, dx may be dy.
// Source: Zhang & Sennrich 2019, arXiv:1910.07467.   Threads: any, each with a dgain of its own.
#pragma once

#include <cstdint>

#include "herd/base/dtype.h"

namespace herd::kernels {

struct NormRows {
  DType type = DType::kF32;  // type of all arrays but r and dgain
  int64_t rows = 0, width = 0;
};

void rms_norm(const NormRows& shape, const void* x, const void* gain, float epsilon, void* y, float* r);
void rms_norm_backward(const NormRows& shape, const void* dy, const void* x, const void* gain, const float* r, void* dx,
                       float* dgain);

}  // namespace herd::kernels
