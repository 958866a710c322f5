// Sums the squares of fp32 values in fp64, for gradient norms. Element i goes to partial sum i mod 16; the 16 sums are
// added pairwise. The bits are the same in every run, at any alignment and on every instruction set; each square is
// exact in fp64.
// NaN and infinity propagate, so a finite result proves finite input (short of overflow of fp64).   Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

double sum_of_squares(const float* values, int64_t count);

}  // namespace herd::kernels
