// Measures how fast cores copy: one alone, then several together, each pieces of 1 MiB of its own. Pieces are in the
// cache, or pass it and come back from memory. It takes the lower quartile of 8 rounds, some 4 ms in all. Ranks do not
// wait for each other in between, so on a busy host it lasts until each has had as much of a core. After 5 ms it takes
// fewer rounds.
// Threads: any.
#pragma once

#include <cstddef>

#include "herd/measure/figures.h"

namespace herd::measure {

struct CopyTimes {  // microseconds of a piece
  double cached = 0, past_cache = 0;
};

CopyTimes time_copies();
CopyTimes least_of(const CopyTimes& a, const CopyTimes& b);

// Returns the times of `ranks` that copy: the first one's alone, and the least of all at once.
MemoryProbe memory_probe_of(size_t ranks, const CopyTimes& alone, const CopyTimes& all);

// Measures by threads of this process, as a job of as many ranks on this host would (comm/world_probes.h).
// REQUIRES threads > 1.
MemoryProbe probe_memory(int threads);

}  // namespace herd::measure
