// Bytes, durations and numbers as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace herd {

// "4KiB", "1.5 GiB", "80GB", "4096" -> bytes. KiB.. are powers of 1024, KB.. of 1000. Throws kBadConfig.
int64_t parse_bytes(std::string_view text);
std::string format_bytes(double bytes);      // "1.21 GiB", "512 B"
std::string format_us(double microseconds);  // "1.8 us", "12.4 ms", "3.20 s", "4 min 12 s"
std::string format_count(double count);      // "162 M", "7.5 B"
std::string format_number(double value);     // "0.1", "1e+300": the shortest text that reads back as the same number

}  // namespace herd
