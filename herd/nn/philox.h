// Makes random numbers by counter: Philox4x32 with 10 rounds. The same key and counter give the same four words
// anywhere. So a number depends on its use, and never on who draws it, when, or in which order.
// Source: Salmon et al. 2011, doi:10.1145/2063384.2063405, section 3.3.   Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace herd::nn {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxCounter = std::array<uint32_t, 4>;

constexpr PhiloxCounter philox(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * c[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(odd >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(odd),
         static_cast<uint32_t>(even >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(even)};
    k = {k[0] + 0x9E3779B9, k[1] + 0xBB67AE85};
  }
  return c;
}

// Mixes a seed with another word into 64 bits for keys (splitmix64's finisher).
constexpr uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15 * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr PhiloxKey philox_key(uint64_t mixed) {
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

constexpr uint64_t hash_name(std::string_view name) {  // is FNV-1a
  uint64_t hash = 0xCBF29CE484222325;
  for (char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001B3;
  return hash;
}

}  // namespace herd::nn
