// Elementwise reduction of n inputs into m outputs in one pass over memory.
//   target[j][i] = round(scale * (source[0][i] op source[1][i] op ... op source[n-1][i]))
//   fp16, bf16   accumulated in fp32, rounded once to nearest even
//   fp32, fp64   accumulated in their own type
//   integers     sum and product wrap
//   and, or, xor bit by bit
//   bool         bytes 0 and 1; min = and, max = or
//   min, max     NaN propagates
//   average      is the sum; the caller passes scale = 1/ranks where the last contribution is added
//   premultiplied_sum  is the sum; the caller has multiplied (one source, scale = factor)
// Order: source 0, 1, .., n-1, so the same inputs give the same bits on every machine, at any alignment or split.
// Traffic: (n + m) * count * size_of(dtype) bytes, plus m * count * size_of(dtype) read for ownership when kCached.
#pragma once

#include <cstdint>
#include <span>

#include "herd/base/dtype.h"
#include "herd/base/reduce_op.h"
#include "herd/kernels/store_kind.h"

namespace herd::kernels {

// REQUIRES one source and one target at least; each holds `count` >= 0 elements and is aligned to its element. A target
// may be the same pointer as a source; other overlaps are not allowed. scale != 1 for floating types only.
// Throws kBadConfig where `op` does not support `dtype`.   Threads: any; the ranges written must differ.
void reduce(std::span<void* const> targets, std::span<const void* const> sources, int64_t count, DType dtype,
            ReduceOp op, double scale = 1.0, StoreKind store = StoreKind::kCached);

const char* simd_target();  // the instruction set that dispatch picked: "AVX3", "AVX2", "SCALAR", ...

}  // namespace herd::kernels
