// Describes the machines of a job as far as predictions need them: hosts with cores, memory and an uplink, and their
// ranks. Rates are bytes per microsecond (1 GB/s = 1000). Threads: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/ids.h"

namespace herd {

// A message takes latency_us, and for its bytes the longer of the link's time and a core's. It keeps its sender's core
// for message_us after it has left, and its receiver's for the last message_us of the latency. So a rank that sends one
// message and receives one at the same time needs at least 2 message_us. Source: LogGP with overheads inside the
// latency, Alexandrov et al. 1995, doi:10.1145/215399.215427.
struct Link {
  double latency_us = 0;
  double bytes_per_us = 0;
  double message_us = 0;         // time of each end's core for a message, whatever it holds
  double core_bytes_per_us = 0;  // rate at which a core sends, or receives and copies out; 0 = the link alone limits
  // A limited link may let bursts pass: what it could have carried before, up to burst_bytes, passes at
  // burst_bytes_per_us.
  double burst_bytes = 0;  // 0 = none
  double burst_bytes_per_us = 0;
  bool operator==(const Link&) const = default;

  // Returns the microseconds that the link takes for `bytes`. It assumes that a pause of the same length follows each
  // sending. In the pause the link regains what it may send as a burst.
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
  // Factors give the cost of a byte, relative to one in cache lines that only this core touches.
  double peer_read_factor = 1;     // loaded from lines that a peer wrote
  double peer_write_factor = 1;    // stored to a peer's output
  double shared_write_factor = 3;  // stored to own lines that a peer has read meanwhile
  double stage_write_factor = 1;   // stored to the stage
  double stage_read_factor = 1;    // loaded from a peer's stage
  double message_factor = 1;       // a byte stored to, or loaded from, the rings that messages pass on the host
  double signal_us = 0.3;          // time until a peer sees a flag or a message
  // Time of both ends' cores together for a message on this host, half of it each, beside its steps and bytes.
  double message_us = 0;
  double step_us = 0.05;      // time of a rank's thread for any step of a schedule
  double call_us = 0;         // time of a collective beside its steps
  double turn_us = 0;         // time to switch a core to the next of the ranks that share it
  Link uplink = {15, 1'250};  // to the other hosts, each way: 10 Gbit/s
  bool operator==(const Host&) const = default;
};

// A tier is a grade of switches above hosts. Groups of `size` hosts share one uplink; in a further tier they are groups
// of the groups below.
struct Tier {
  int size = 1;
  Link uplink = {};  // each way, for the whole group: adds its latency to messages that go up, which share its rate
  bool operator==(const Tier&) const = default;
};

enum class Fabric : uint8_t {
  kSwitch,  // every host reaches every other over its uplink, the tiers and the spine
  kTorus,   // hosts stand on a grid; links join neighbours, and both ends of every line
  kMesh,    // the same without the links that join the ends
};

inline constexpr double kMaxFactor = 1e6;                         // limit of the factors of a Host, which are >= 1e-6
inline constexpr size_t kMaxTiers = 8;                            // limit of tiers, and of axes
inline constexpr int kMaxHosts = 100'000, kMaxRanks = 1'000'000;  // of a topology

struct Topology {
  std::string name;
  std::vector<Host> hosts;        // ranks are numbered host by host, but where `placement` says otherwise
  double spine_bytes_per_us = 0;  // all traffic between hosts together; 0 = no limit (a full spine)
  std::vector<Tier> tiers = {};   // of kSwitch, innermost first
  Fabric fabric = Fabric::kSwitch;
  // Holds the sizes of the grid of hosts for kTorus and kMesh, the fastest axis first. A link to a neighbour is as fast
  // as the host's uplink, in each direction of each axis.
  std::vector<int> axes = {};
  std::vector<int> placement = {};  // host of each rank; empty = host by host
  bool operator==(const Topology&) const = default;

  int num_ranks() const;
  int host_of(Rank rank) const;  // returns an index in hosts. REQUIRES 0 <= rank < num_ranks()
  std::vector<int> host_of_ranks() const;
};

// Counts the grades of distance: inside a host, between hosts, and one more for each tier.
int num_distances(const Topology& topology);
// Returns 0 inside a host, 1 between hosts below the same switch, 2 above the first tier, ..
int distance(const Topology& topology, int from_host, int to_host);

// A hop is one link that a message crosses on a torus or mesh. A route goes axis by axis, the short way round; a
// direction is +1 or -1.
struct Hop {
  int host = 0;
  int axis = 0;
  int direction = 1;
};
std::vector<Hop> route(const Topology& topology, int from_host, int to_host);

// Returns the axes of the ranks' grid (collectives/grid.h), if the topology has one. They are those of a torus or mesh
// below the ranks of a host, else ranks a host, hosts a group, and so on. Axes of size 1 are left out. Returns empty
// for hosts of different sizes, for switches without tiers, and for fewer than two axes.
std::vector<int> grid_of(const Topology& topology);

// Throws kBadConfig with the rule for a topology that can't be: no rank, a rate or a time below zero, ...
void check(const Topology& topology);

}  // namespace herd
