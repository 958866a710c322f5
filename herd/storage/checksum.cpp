#include "herd/storage/checksum.h"

#include <array>
#include <cstring>

#include "herd/base/hex.h"
#include "herd/storage/crc32c_table_internal.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace herd {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the checksum of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xFF];
  }
  return tables;
}
constexpr Tables kTables = make_tables();

uint64_t load_word(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t previous) {
  uint64_t crc = ~previous;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) crc = _mm_crc32_u64(crc, load_word(at));
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(*at));
  return ~static_cast<uint32_t>(crc);
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t previous) {
  uint32_t crc = ~previous;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const uint64_t word = load_word(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xFF];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_by_instruction(bytes, previous);
#endif
  return crc32c_by_table(bytes, previous);
}

uint32_t crc32c(std::string_view text, uint32_t previous) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), previous);
}

std::string format_crc32c(uint32_t checksum) {
  std::string text;
  for (const int shift : {24, 16, 8, 0}) append_hex(text, static_cast<uint8_t>(checksum >> shift));
  return text;
}

}  // namespace herd
