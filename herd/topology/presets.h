// Common topologies by a few numbers. Threads: pure.
#pragma once

#include "herd/topology/topology.h"

namespace herd {

// Ranks that share one host of so many cores; the other numbers are Host's defaults.
Topology one_host(int ranks, int cores);

// Equal hosts below leaf switches; `oversubscription` o >= 1: the spine carries 1/o of what all uplinks together can.
Topology spine_leaf(int num_hosts, const Host& host, double oversubscription = 1);

// Ranks 0 .. count-1 of `topology` and their hosts alone. Throws kBadConfig where it has fewer.
Topology first_ranks(const Topology& topology, int count);

}  // namespace herd
