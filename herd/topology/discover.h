// Describes the machines of a job where the user states no topology. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// Returns "AMD EPYC, 2 cores": measured times hold for machines of this name.
std::string machine_name();

// Returns this machine's cores and last-level cache, by hwloc; rates are Host's defaults.
Host this_host(int ranks);

// Returns the host with the latencies that its ranks see: where ranks outnumber cores, a signal waits for a time slice.
Host with_turn_latencies(Host host);

// Builds a topology. `hosts` gives a host number for each rank; any numbers do. `host` describes every host but for its
// number of ranks, which is counted from `hosts`, and its uplink, which is `between`.
Topology assemble(const std::vector<int>& hosts, const Host& host, const Link& between);

}  // namespace herd
