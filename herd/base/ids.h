// Defines the identifiers that every layer shares. Threads: plain data.
#pragma once

#include <cstdint>

namespace herd {

using Rank = int;  // 0 .. size-1 within a group; a peer's rank is in the same group as self's

inline constexpr Rank kAnySource = -1;  // to receive from whoever sends first

}  // namespace herd
