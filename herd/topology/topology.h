// The machines of a job as far as predictions need them: hosts with cores, memory and an uplink, and which rank runs
// where. Rates are bytes per microsecond (1 GB/s = 1000). Threads: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/ids.h"

namespace herd {

// A message alone takes latency_us, and its bytes the longer of the link's time and a core's. Where several pass, each
// keeps its sender's core for message_us after it has left, and of its latency the last message_us are its receiver's:
// a rank that sends one and receives one at the same time needs at least 2 message_us (LogGP with overheads that the
// latency holds: Alexandrov et al. 1995, doi:10.1145/215399.215427).
struct Link {
  double latency_us = 0;
  double bytes_per_us = 0;
  double message_us = 0;         // what each end's core does for a message, whatever it holds
  double core_bytes_per_us = 0;  // what a core sends, or receives and copies out; 0 = the link alone is the limit
  // A limited link may let bursts pass: what it could have carried, up to burst_bytes, passes at burst_bytes_per_us.
  double burst_bytes = 0;  // 0 = none
  double burst_bytes_per_us = 0;
  bool operator==(const Link&) const = default;

  // Microseconds that the link takes for `bytes` where as many follow again and again, each after as long a pause.
  double carry_us(double bytes) const;
};

// Rates count every byte a core reads or writes: a copy of S bytes moves 2 S.
struct Host {
  int ranks = 1;  // ranks that run on this host
  int cores = 1;
  double core_bytes_per_us = 8'000;          // rate of one core, data in memory
  double memory_bytes_per_us = 13'000;       // rate of all cores together, data in memory
  double cached_core_bytes_per_us = 40'000;  // rate of one core while all that a collective touches fits the cache
  double cached_bytes_per_us = 84'000;       // rate of all cores together then
  int64_t cache_bytes = 32 << 20;            // size of the last-level cache, which all cores share
  // What a byte in the cache costs in units of one of a core's own memory.
  double peer_read_factor = 1;     // loaded from lines that a peer wrote
  double peer_write_factor = 1;    // stored to a peer's output
  double shared_write_factor = 3;  // stored to own lines that a peer has read meanwhile
  double stage_write_factor = 1;   // stored to the stage
  double stage_read_factor = 1;    // loaded from a peer's stage
  double message_factor = 1;       // a byte stored to, or loaded from, the rings that messages pass on the host
  double signal_us = 0.3;          // passes until a peer sees a flag or a message
  double message_us = 0;           // is what a message costs both ends' cores together, beside its steps and bytes
  double step_us = 0.05;           // is what any step of a schedule costs its rank's thread
  double call_us = 0;              // is what a collective costs beside its steps
  double turn_us = 0;              // passes until the next of the ranks that share a core works on it
  Link uplink = {15, 1'250};       // to the other hosts, each way: 10 Gbit/s
  bool operator==(const Host&) const = default;
};

// Switches above the hosts, innermost first: groups of `size` hosts (or of the groups below) share one way up.
struct Tier {
  int size = 1;
  Link uplink = {};  // each way, of the whole group: its latency is added to messages that go up, its rate shared
  bool operator==(const Tier&) const = default;
};

enum class Fabric : uint8_t {
  kSwitch,  // every host reaches every other over its uplink, the tiers and the spine
  kTorus,   // hosts stand on a grid; links join neighbours, and both ends of every line
  kMesh,    // the same without the links that join the ends
};

inline constexpr double kMostFactor = 1e6;
inline constexpr size_t kMaxTiers = 8;                            // or axes
inline constexpr int kMaxHosts = 100'000, kMaxRanks = 1'000'000;  // of a topology

struct Topology {
  std::string name;
  std::vector<Host> hosts;        // ranks are numbered host by host, but where `placement` says otherwise
  double spine_bytes_per_us = 0;  // all traffic between hosts together; 0 = no limit (a full spine)
  std::vector<Tier> tiers = {};   // of kSwitch
  Fabric fabric = Fabric::kSwitch;
  std::vector<int> axes = {};       // of kTorus and kMesh: the grid of hosts, the fastest axis first. A link to a
                                    // neighbour is as fast as the host's uplink, in each direction of each axis
  std::vector<int> placement = {};  // host of each rank; empty = host by host
  bool operator==(const Topology&) const = default;

  int num_ranks() const;
  int host_of(Rank rank) const;  // index in hosts. REQUIRES 0 <= rank < num_ranks()
  std::vector<int> host_of_ranks() const;
};

// Counts the grades of distance: inside a host, between hosts, and one more for each tier.
int num_distances(const Topology& topology);
// 0 inside a host, 1 between hosts below the same switch, 2 above the first tier, ..
int distance(const Topology& topology, int from_host, int to_host);

// The links that a message crosses on a torus or mesh, axis by axis, the short way round: (host, axis, +1 or -1) each.
struct Hop {
  int host = 0;
  int axis = 0;
  int direction = 1;
};
std::vector<Hop> route(const Topology& topology, int from_host, int to_host);

// The axes of the ranks' grid (collectives/grid.h), if the topology has one: those of a torus or mesh below the ranks
// of a host, or ranks of a host, hosts of a group, groups, ... Empty for hosts of different sizes and where nothing but
// hosts divides the ranks.
std::vector<int> grid_of(const Topology& topology);

// Throws kBadConfig, naming the rule, for a topology that can't be: no rank, a rate or a time below zero, ...
void check(const Topology& topology);

}  // namespace herd
