// How fast the ranks of a host copy, measured when a world is made: by the first ranks of rank 0's host, as many as it
// has cores, together. They copy pieces of 1 MiB, which the last cache holds:
//   own memory      by the first of them alone, and by all
//   past the cache  to the stage, and then from a peer's, where it comes from memory
// The least of 12 rounds and of all ranks, since what comes between only adds: some 2 ms; given up after 15 ms, where
// ranks have to wait for their cores.
// Threads: the world's calling thread.
#pragma once

#include <optional>

#include "herd/comm/group_state.h"
#include "herd/topology/probe.h"

namespace herd::comm {

// Collective over the world, before its other operations. Nothing on other ranks than 0, where no two ranks of its host
// have a core each, and where it was given up. Throws the group's error.
std::optional<MemoryProbe> probe_memory(GroupState& world);

}  // namespace herd::comm
