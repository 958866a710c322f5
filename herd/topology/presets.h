// Makes common topologies from a few numbers. Threads: pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// Returns ranks that share one host of `cores`, and take turns where they outnumber them. Other values are Host's
// defaults.
Topology one_host(int ranks, int cores);

// Returns equal hosts below leaf switches. `oversubscription` o >= 1: the spine carries 1/o of what all uplinks can.
Topology spine_leaf(int num_hosts, const Host& host, double oversubscription = 1);

// Returns racks of `hosts_per_rack` hosts below a spine. The uplink of a rack carries what its hosts can, divided by
// oversubscription, and adds `rack_latency_us`.
Topology racks(int num_racks, int hosts_per_rack, const Host& host, double oversubscription = 1,
               double rack_latency_us = 2);

// Returns one rank per host on a grid, the fastest axis first, with every link as fast as host.uplink.
// torus_network({4, 4}) is a 2D torus, torus_network({4, 4, 4}) a 3D one; a mesh has no links that join the ends of a
// line.
Topology torus_network(const std::vector<int>& axes, const Host& host);
Topology mesh_network(const std::vector<int>& axes, const Host& host);

// Returns a preset by name, as `herd explain --topology` takes it: "torus:4x4", "torus:4x4x4" and "mesh:4x4" have
// hosts of one rank. "hosts:4x8" is 4 hosts of 8 ranks, "racks:2x4x8" 2 racks of 4 hosts of 8 ranks. Each host has
// Host's defaults and a core for every rank. Returns nothing for an unknown name; throws kBadConfig for numbers that
// are out of range.
std::optional<Topology> preset(std::string_view name);

// Puts rank r on host r mod hosts. REQUIRES hosts of equally many ranks.
Topology placed_cyclically(Topology topology);

// Returns the part that a group of these ranks sees, numbered from 0 in this order. Hosts are in the order of
// their first ranks. REQUIRES at least one rank.
//   tiers   are kept from the hosts upwards, while the hosts of each group stand together, equally many in each, and
//           there are several groups.
//   a grid  stays where the hosts are a box of it, in its order. A box of a torus is a torus if it has all places of
//           each axis, or one; else it is a mesh. A box of a mesh is a mesh.
// Otherwise each host keeps its uplink, and the spine stays unless all hosts are below one switch.
Topology only_ranks(const Topology& topology, const std::vector<Rank>& ranks);

// Returns ranks 0 .. count-1 of `topology` and their hosts alone. Throws kBadConfig where it has fewer, and for a part
// of a torus, of a mesh or of tiers.
Topology first_ranks(const Topology& topology, int count);

}  // namespace herd
