// Defines the identifiers that every layer shares. Threads: plain data.
#pragma once

#include <cstdint>

namespace herd {

using Rank = int;  // 0 .. size-1, counted within the group that is meant; the world is the group of all ranks

inline constexpr Rank kAnySource = -1;  // to receive from whoever sends first

}  // namespace herd
