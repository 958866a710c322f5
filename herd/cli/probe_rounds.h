// Of how many rounds the probe of a host (host_probe.h) makes a sample, after some that bring memory, stage and rings
// into the state that repetitions of an operation find: what was written past the caches, or pushed out of them, comes
// back over several. Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "herd/transport/local_channel.h"

namespace herd::cli {

struct ProbeRounds {
  int before, measured;
};

// The more ranks take turns, the fewer of them.
inline ProbeRounds probe_rounds(int64_t bytes, int turns) {
  if (bytes > 8 << 20) return {1, 1};
  return {std::max(2, 16 * 4 / std::max(4, turns)), std::max(2, 5 * 4 / std::max(4, turns))};
}

// Of the pieces of a long buffer, one after the other as an operation moves them.
inline constexpr ProbeRounds kPieceRounds = {4, 12};

// Calls until a ring has been filled once by messages of so many bytes, behind a line each; 2000 at most.
inline int calls_around_a_ring(int ranks, int64_t message, bool rooted) {
  constexpr int64_t kLine = 64, kMost = 2000;
  const int64_t ring = transport::LocalLayout(ranks).ring_bytes[static_cast<size_t>(transport::Lane::kCollective)];
  const int messages_a_call = rooted ? 1 : std::max(1, ranks - 1);
  return static_cast<int>(std::min(kMost, ring / ((kLine + message) * messages_a_call)));
}

}  // namespace herd::cli
