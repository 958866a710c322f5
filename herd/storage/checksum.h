// Computes CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected, all-ones start and end), the checksum of every herd
// file. It uses the processor's instruction where there is one (SSE4.2), else eight table look-ups per 8 bytes.
// Chains: crc32c(b, crc32c(a)) == crc32c(a followed by b).   Check: crc32c("123456789") == 0xE3069283.
// Source: Castagnoli, Braeuer, Herrmann 1993, doi:10.1109/26.231911.   Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace herd {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);
uint32_t crc32c(std::string_view text, uint32_t previous = 0);
std::string format_crc32c(uint32_t checksum);  // returns 8 lower-case hexadecimal digits

}  // namespace herd
