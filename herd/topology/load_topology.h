// Loads the topology that a user names, by a preset or a file, and checks it against the job's ranks.
// Threads: pure, but for reading the file.
#pragma once

#include <string>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// A preset's name (presets.h), or a file of docs/formats/topology.md. Throws kBadConfig where there is neither,
// kCorruptFile naming file, line and rule.
Topology load_topology(const std::string& name);

// `hosts` says on which host each rank runs, by any numbers; empty: all on one. Throws kBadConfig, with a fix, where
// the topology has other ranks, or puts two on one host that run on two. It may cut a host into several (its sockets,
// say): between these, messages pass.
void check_topology_of_ranks(const Topology& topology, int num_ranks, const std::vector<int>& hosts);

// True where the topology splits ranks of one host over several.
bool cuts_hosts(const Topology& topology, const std::vector<int>& hosts);

}  // namespace herd
