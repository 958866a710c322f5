// Threads: pure.
#pragma once

#include <cstdint>

namespace herd {

// Applies the finaliser of SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195): each bit of the result
// depends on every bit of x.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace herd
