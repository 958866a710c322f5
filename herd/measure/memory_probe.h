// Measures how fast cores copy: one alone, then several together, each pieces of 1 MiB of its own:
//   in the cache    what was copied before
//   past the cache  and back, when it comes from memory
// The lower quartile of 8 rounds, of the one that takes least: some 4 ms with the pages. None waits for another in
// between, so that on a busy host it takes until each has had so much of a core; of fewer rounds after 5 ms.
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

// Of `ranks` that copy: the first one's times alone, and the least of all at once.
MemoryProbe memory_probe_of(size_t ranks, const CopyTimes& alone, const CopyTimes& all);

// By threads of this process: what a job of as many ranks on this host would find (comm/world_probes.h).
// REQUIRES threads > 1.
MemoryProbe probe_memory(int threads);

}  // namespace herd::measure
