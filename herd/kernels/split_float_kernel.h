// Splits fp32 numbers into two halves of 16 bits without loss: the nearest bf16, and the number's own lower 16 bits.
//   high = (bits + 2^15) >> 16;   low = bits mod 2^16;   bits = ((high - (low >> 15)) << 16) + low
// A number half way between two of bf16 goes to the one farther from zero, not to the even one. `low` has no bit left
// to tell the two sides apart. Beyond the range of bf16 `high` is infinite, and the two halves still give the number
// back. A NaN keeps its sign and upper bits, and becomes quiet.
// Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

// `high` holds the bits of bf16 (half.h). No two of the three arrays overlap, and each is aligned to its element.
void split_float(const float* exact, uint16_t* high, uint16_t* low, int64_t count);
void join_float(const uint16_t* high, const uint16_t* low, float* exact, int64_t count);

}  // namespace herd::kernels
