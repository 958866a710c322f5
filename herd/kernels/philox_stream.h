// Makes random numbers by counter, in bulk: Philox4x32 with 10 rounds over consecutive counters. Counter i is the words
// {i low, i high, word2, word3}. Its four words are elements 4i .. 4i+3 of what is drawn, so any cut of a range draws
// the same. The bits are the same on every instruction set.
// Source: Salmon et al. 2011, doi:10.1145/2063384.2063405, section 3.3.   Threads: any.
#pragma once

#include <array>
#include <cstdint>

namespace herd::kernels {

struct PhiloxStream {
  std::array<uint32_t, 2> key = {};
  uint32_t word2 = 0, word3 = 0;
};

// Writes the words of counters [first, first + count) into out[4 * count].
void philox_words(const PhiloxStream& stream, uint64_t first, int64_t count, uint32_t* out);

// Writes scale times normal deviates of mean 0 and variance 1 into out[4 * count], by Box-Muller on pairs of words (a,
// b):
//   scale * r * cos(t), scale * r * sin(t)     r = sqrt(-2 ln u), t = 2 pi v,
//   u = ((a >> 8) + 1) / 2^24 in (0, 1],  v = (b >> 8) / 2^24 in [0, 1)
// Each is within 1e-6 * scale of the exact value; the largest is 5.77 * scale.
// Source: Box & Muller 1958, doi:10.1214/aoms/1177706645.
void philox_normals(const PhiloxStream& stream, uint64_t first, int64_t count, float scale, float* out);

}  // namespace herd::kernels
