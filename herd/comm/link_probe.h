// How long messages take between hosts, measured when a world is made: the first ranks of hosts 2k and 2k + 1 time a
// few of each other's, all such pairs at once; where hosts are odd in number, the last one then asks its neighbour.
//   short  the lower quartile of up to 60 round trips of 8 bytes, halved
//   long   messages that double from 64 KiB until one takes 4 ms (or has 4 MiB): the rate of its second half, since the
//          first may pass a limited link in a burst
// About 10 ms, where a rank has a core. Threads: the world's calling thread.
#pragma once

#include <optional>

#include "herd/comm/group_state.h"
#include "herd/topology/probe.h"

namespace herd::comm {

// Collective over the world, before its other operations. On rank 0 the slowest of all links (the greatest latency, the
// least rate); nothing on other ranks, and where there is one host. Throws the group's error.
std::optional<LinkProbe> probe_links(GroupState& world);

}  // namespace herd::comm
