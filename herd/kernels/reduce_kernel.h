// Reduces n inputs into m outputs, element by element, in one pass over memory.
//   target[j][i] = round(scale * (source[0][i] op source[1][i] op ... op source[n-1][i]))
//   fp16, bf16         are summed in fp32, and rounded once to nearest even
//   fp32, fp64         are summed in their own type
//   integers           wrap in sum and product
//   and, or, xor       work bit by bit
//   bool               is bytes 0 and 1; min = and, max = or
//   min, max           propagate NaN
//   average            is the sum; the caller passes scale = 1/ranks where the last contribution is added
//   premultiplied_sum  is the sum; the caller first multiplies each input, by a call with one source and scale = factor
// It reduces sources in order 0, 1, .., n-1, so the same inputs give the same bits on every machine, alignment or
// split. It moves (n + m) * count * size_of(dtype) bytes, and with kCached reads m * count * size_of(dtype) more for
// ownership.
#pragma once

#include <cstdint>
#include <span>

#include "herd/base/dtype.h"
#include "herd/base/reduce_op.h"
#include "herd/kernels/write_kind.h"

namespace herd::kernels {

// REQUIRES at least one source and one target; each holds `count` >= 0 elements and is aligned to its element. A target
// may be the same pointer as a source; other overlaps are not allowed. scale != 1 is for floating types only. Throws
// kBadConfig where `op` does not support `dtype`.   Threads: any; the ranges written must differ.
void reduce(std::span<void* const> targets, std::span<const void* const> sources, int64_t count, DType dtype,
            ReduceOp op, double scale = 1.0, WriteKind store = WriteKind::kCached);

const char* simd_target();  // returns the instruction set that dispatch picked: "AVX3", "AVX2", "SCALAR", ...

}  // namespace herd::kernels
