// Gives a target's bytes to a parser that reads a file by its path, and lets checksums in them fit.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "herd/storage/checksum.h"

// Returns the path of a file in memory that holds these bytes until the next call.
inline std::string path_of(const std::vector<uint8_t>& bytes) {
  static const int file = memfd_create("fuzzed", MFD_CLOEXEC);
  if (ftruncate(file, static_cast<off_t>(bytes.size())) != 0 ||
      pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return "/proc/self/fd/" + std::to_string(file);
}

inline void put_checksum(std::vector<uint8_t>& bytes, size_t at, std::span<const uint8_t> of) {
  const uint32_t value = herd::crc32c(std::as_bytes(of));
  std::memcpy(&bytes[at], &value, sizeof value);
}
