// Hashes what ranks call, so that they can compare it. Hashes are the same on all machines. Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace herd::comm {

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ hash >> 32;
}

// Returns FNV-1a, 64 bits.
inline uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace herd::comm
