// Defines how staged algorithms cut a message into pieces that fit the stage memory of a host. The size alone decides,
// never a time, so all ranks cut alike.   Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "herd/base/dtype.h"

namespace herd {

inline constexpr int64_t kOneShotBytes = 32 << 10;    // up to here every rank reduces everything itself
inline constexpr int64_t kMinPieceBytes = 64 << 10;   // below this, synchronisation costs more than the copy
inline constexpr int64_t kMaxPieceBytes = 512 << 10;  // a piece and its reduction stay in the cache
inline constexpr int64_t kWantedPieces = 8;           // enough to overlap, few enough to be cheap

// Counts the pieces of `elements` that one rank stages: an eighth each, within the bounds; at least 1.
constexpr int num_pieces(int64_t elements, DType dtype) {
  const int64_t bytes = elements * size_of(dtype);
  const int64_t piece = std::clamp(bytes / kWantedPieces, kMinPieceBytes, kMaxPieceBytes);
  return static_cast<int>(std::max<int64_t>(1, (bytes + piece - 1) / piece));
}

}  // namespace herd
