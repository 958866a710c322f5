// Decides which ranks of a new world time what of it (herd/measure), over its own lanes.
//   links   the first ranks of hosts 2k and 2k + 1, all such pairs at once; where hosts are odd in number, the last one
//           then asks its neighbour
//   memory  rank 0 alone, then the first ranks of its host, as many as it has cores, together
// Threads: the world's calling thread.
#pragma once

#include <optional>

#include "herd/comm/group_state.h"
#include "herd/measure/figures.h"

namespace herd::comm {

// Collective over the world, before its other operations. On rank 0 the slowest of all links, not rounded; nothing on
// other ranks, and where there is one host. Throws the group's error.
std::optional<Link> probe_links(GroupState& world);

// Collective over the world, before its other operations. Nothing on other ranks than 0, and where no other rank shares
// its host, or a core is all they have. Throws the group's error.
std::optional<measure::MemoryProbe> probe_memory(GroupState& world);

}  // namespace herd::comm
