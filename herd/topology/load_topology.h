// Loads the topology that a user names, by a preset or a file, and checks it against the job's ranks.
// Threads: pure, but for reading the file.
#pragma once

#include <string>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// Loads a preset by its name (presets.h), or a file of docs/formats/topology.md. Throws kBadConfig where there is
// neither; kCorruptFile with file, line and rule.
Topology load_topology(const std::string& name);

// Checks against the job. `hosts` says on which host each rank runs, in any numbering; empty: all on one. Throws
// kBadConfig, with a fix, where the topology has another number of ranks, or puts ranks of two hosts on one. It may cut
// a host into several, for instance its sockets, which then exchange messages.
void check_topology_of_ranks(const Topology& topology, int num_ranks, const std::vector<int>& hosts);

// Tells whether the topology splits ranks of one host over several.
bool cuts_hosts(const Topology& topology, const std::vector<int>& hosts);

}  // namespace herd
