// Weights between the types that files keep them in and fp32, in which they are converted: to fp32 exactly, from it
// rounded to nearest, ties to even. Threads: pure.
#pragma once

#include <cstddef>
#include <span>

#include "herd/base/dtype.h"

namespace herd::convert {

bool is_weight_type(DType dtype);  // fp32, bf16, fp16

// REQUIRES is_weight_type(dtype), as many elements on both sides.
void to_float(DType dtype, std::span<const std::byte> from, std::span<float> to);

// The index of the first finite element that the type can't hold (it would become infinite), or -1: all are written.
int64_t from_float(std::span<const float> from, DType dtype, std::span<std::byte> to);

}  // namespace herd::convert
