// Defines how pipelined algorithms cut a message into segments that follow each other along a chain or a tree. The
// size alone decides, never a time, so all ranks cut alike.   Threads: pure.
#pragma once

#include <algorithm>

#include "herd/collectives/request.h"

namespace herd {

inline constexpr int64_t kMinSegmentBytes = 32 << 10;  // below this, latency costs more than what overlap saves
inline constexpr int64_t kMaxSegmentBytes = 1 << 20;
inline constexpr int64_t kWantedSegments = 16;

// Counts the segments: of request.segment_bytes each, or else of a sixteenth of the message within the bounds. Returns
// at least 1 and at most 4096.
inline int num_segments(const CollectiveRequest& request) {
  const int64_t bytes = request.bytes();
  const int64_t wanted = std::clamp(bytes / kWantedSegments, kMinSegmentBytes, kMaxSegmentBytes);
  const int64_t segment = std::max<int64_t>(1, request.segment_bytes > 0 ? request.segment_bytes : wanted);
  return static_cast<int>(std::clamp<int64_t>((bytes + segment - 1) / segment, 1, 4096));
}

}  // namespace herd
