// Decides which ranks of a new world measure it (herd/measure), over its own lanes.
//   links   the first ranks of hosts 2k and 2k + 1 measure, all such pairs at once; where the number of hosts is odd,
//           the last one then measures with its neighbour
//   memory  rank 0 measures alone, then the first ranks of its host, as many as it has cores, measure together
// Threads: the world's calling thread.
#pragma once

#include <optional>

#include "herd/comm/group_state.h"
#include "herd/measure/figures.h"

namespace herd::comm {

// Collective over the world, before its other operations. Returns the slowest of all links, not rounded, on rank 0;
// nothing on other ranks, and where there is one host. Throws the group's error.
std::optional<Link> probe_links(GroupState& world);

// Collective over the world, before its other operations. Returns nothing on ranks other than 0, where no other rank
// shares its host, and where they have one core. Throws the group's error.
std::optional<measure::MemoryProbe> probe_memory(GroupState& world);

}  // namespace herd::comm
