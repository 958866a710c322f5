// Rounds fp32 numbers to a multiple of amax / Q in blocks, where amax is the largest magnitude of the block.
//   q = round(x / amax * Q), ties to even        Q = 127 (int8, a byte each), 7 (int4, two in a byte)
//   Error at most amax / (2 Q), but for 0.1 % of it by rounding.
// A block of all zeros has amax 0. One with a NaN or infinity has amax NaN, and decodes as NaN.
// int4: byte j of a block of r elements holds q + 8 of element j in its lower half, of element ceil(r/2) + j in the
// upper. Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

// Writes the amax of each block. REQUIRES block > 0.
void block_maxima(const float* values, int64_t count, int64_t block, float* maxima);

// These work on one block: `count` elements with the same amax. `codes` has count bytes for int8, ceil(count/2) for
// int4.
void encode_block_int8(const float* values, int64_t count, float amax, uint8_t* codes);
void encode_block_int4(const float* values, int64_t count, float amax, uint8_t* codes);
// Writes the numbers.
void decode_block_int8(const uint8_t* codes, int64_t count, float amax, float* values);
void decode_block_int4(const uint8_t* codes, int64_t count, float amax, float* values);
// Adds factor times the numbers.
void add_block_int8(const uint8_t* codes, int64_t count, float amax, float factor, float* values);
void add_block_int4(const uint8_t* codes, int64_t count, float amax, float factor, float* values);

}  // namespace herd::kernels
