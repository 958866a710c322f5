// The machines that a job finds where nobody gives it a topology. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// "AMD EPYC, 2 cores": what a file of measured times is true of.
std::string machine_name();

// This machine's cores and last-level cache, by hwloc; rates are Host's defaults.
Host this_host(int ranks);

// The host as its ranks find it, whose signals and messages wait for turns where ranks outnumber cores.
Host by_turns(Host host);

// `hosts` says where each rank runs, by any numbers; `host` what each of them is like (its
// ranks are counted here, and take turns on its cores); `between` their uplinks.
Topology assemble(const std::vector<int>& hosts, const Host& host, const Link& between);

}  // namespace herd
