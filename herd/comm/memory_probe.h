// How fast the ranks of a host copy, measured when a world is made: by rank 0 alone, then by the first ranks of its
// host, as many as it has cores, together. They copy pieces of 1 MiB of their own:
//   in the cache    what was copied before
//   past the cache  and back, when it comes from memory
// The lower quartile of 8 rounds, of the rank that takes least: some 4 ms with the pages. No rank waits for another in
// between, so that on a busy host it takes until each has had so much of a core; of fewer rounds after 5 ms.
// Threads: the world's calling thread.
#pragma once

#include <optional>

#include "herd/comm/group_state.h"
#include "herd/topology/probe.h"

namespace herd::comm {

// Collective over the world, before its other operations. Nothing on other ranks than 0, and where no other rank shares
// its host, or a core is all they have. Throws the group's error.
std::optional<MemoryProbe> probe_memory(GroupState& world);

// The same by threads of this process, the first one alone, then all: what a job of as many ranks on this host would
// find. REQUIRES threads > 1.
MemoryProbe probe_memory(int threads);

}  // namespace herd::comm
