// Defines the portable form of crc32c() (checksum.h), which a test compares with the processor's instruction. Threads:
// pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace herd {

// Returns the CRC-32C of bytes that follow those with the CRC-32C `previous`.
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t previous);

}  // namespace herd
