// Converts weights between the types that files hold and fp32: to fp32 exactly, from fp32 rounded to nearest, ties to
// even.   Threads: pure.
#pragma once

#include <cstddef>
#include <span>

#include "herd/base/dtype.h"

namespace herd::convert {

bool is_weight_type(DType dtype);  // tells whether it is fp32, bf16 or fp16

// Writes `from`, which holds elements of `dtype`, to `to`. REQUIRES is_weight_type(dtype) and
// from.size() == to.size() * size_of(dtype).
void to_float(DType dtype, std::span<const std::byte> from, std::span<float> to);

// Writes all of `from` to `to` as elements of `dtype`. Returns the index of the first finite element that the type
// cannot hold (it becomes infinite), or -1 where there is none. REQUIRES is_weight_type(dtype) and
// to.size() == from.size() * size_of(dtype).
int64_t from_float(std::span<const float> from, DType dtype, std::span<std::byte> to);

}  // namespace herd::convert
