// Writes bytes in hexadecimal.   Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace herd {

// Appends the two lowercase digits of a byte.
inline void append_hex(std::string& text, uint8_t byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
}

}  // namespace herd
