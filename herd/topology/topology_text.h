// Writes and reads topologies as text; grammar in docs/formats/topology.md. parse_topology(to_text(t)) == t.
//
//   herd-topology 1
//   name two hosts, 10 Gbit/s
//   spine_bytes_per_us 0
//   hosts 2 ranks 4 cores 4 uplink_latency_us 15 uplink_bytes_per_us 1250
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/topology/topology.h"

namespace herd {

std::string to_text(const Topology& topology);
// Throws kCorruptFile with the line and the rule. Keys that a hosts line leaves out have Host's defaults.
Topology parse_topology(std::string_view text);

}  // namespace herd
