// The portable form of crc32c, named so that a test compares it with the instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace herd {

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t previous);

}  // namespace herd
