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
Host oversubscribed(Host host);

// Builds a topology. `hosts` says where each rank runs, by any numbers. `host` describes each host, and its ranks are
// counted here and share its cores; `between` describes the uplinks.
Topology assemble(const std::vector<int>& hosts, const Host& host, const Link& between);

}  // namespace herd
