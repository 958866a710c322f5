// Writes a list of numbers for reports with little room. Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace herd::comm {

// Returns "3 5 8". A list that takes more than `most` characters is cut and ends with a hash of all numbers, so that
// lists that differ are written differently: "3 5 .. #0a1b2c3d". REQUIRES most >= 9.
std::string short_list(std::span<const int64_t> numbers, size_t most);
inline constexpr size_t kShownList = 32;  // characters of a list in the record of an operation

}  // namespace herd::comm
