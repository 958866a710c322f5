// fp16 matrices are multiplied in fp32 on CPU, where their own kernels are many times slower. Large ones go a piece of
// their rows at a time: an fp32 copy of a vocabulary's weights would be the largest buffer of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace herd::nn {

constexpr int64_t kPieceRows = 2048;

inline bool multiplies_in_fp32(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kHalf; }
inline at::Tensor exact(const at::Tensor& x) { return multiplies_in_fp32(x) ? x.to(at::kFloat) : x; }

// work(begin, count) for pieces of [0, rows).
template <typename Work>
void by_pieces(int64_t rows, const Work& work, int64_t piece = kPieceRows) {
  for (int64_t begin = 0; begin < rows; begin += piece) work(begin, std::min(piece, rows - begin));
}

}  // namespace herd::nn
