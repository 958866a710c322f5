// Reads and writes bytes, durations and numbers as people write them.   Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace herd {

// Reads "4KiB", "1.5 GiB", "80GB" or "4096" as bytes; KiB and so on are powers of 1024, KB of 1000. Throws kBadConfig.
int64_t parse_bytes(std::string_view text);
std::string format_bytes(double bytes);      // returns "1.21 GiB" or "512 B"
std::string format_us(double microseconds);  // returns "1.8 us", "12.4 ms", "3.20 s" or "4 min 12 s"
std::string format_count(double count);      // returns "162 M" or "7.5 B"
std::string format_number(double value);     // returns the shortest text that reads back as the same number: "0.1"

}  // namespace herd
