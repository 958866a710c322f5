// Times the schedules of all ranks on a topology, with the event engine. A step is work for its rank's thread, which
// shares the host's cores, memory and uplink with all other ranks.
//   copy, reduce       takes its bytes read and written at a core's rate, within the memory's rate. Where the cache
//                      holds all that the schedules touch on a host, it takes the cache's rates. Bytes read from or
//                      written to peers or the stage, and bytes written to own memory that a peer has read, are then
//                      multiplied by the host's factors (topology.h: Host).
//   message, one host  is a copy into shared memory and one out of it, in up to 16 overlapping pieces. It takes
//                      message_us of both ends' cores, and signal_us until its receiver sees it.
//   message, two hosts  passes the sender's uplink, the receiver's, the tiers and the spine above them, or every link
//                      of its route on a torus or mesh. Then it is copied out. It takes message_us of both ends' cores,
//                      and bytes / Link::core_bytes_per_us where that is not 0 (topology.h).
//                      The token bucket of an uplink starts as full as it would be after many such operations, each
//                      followed by a pause of its own length.
//   signal             takes the host's signal_us until the wait sees it; the waiting rank may do something else.
// Where ranks outnumber a host's cores, neighbours share one and take turns on it, with Host::turn_us between; a rank
// that waits gives its turn away. The network alone carries what a rank sends to other hosts; that waits for no turn.
// Threads: pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/schedule/schedule.h"
#include "herd/sim/engine.h"
#include "herd/sim/timeline.h"
#include "herd/topology/topology.h"

namespace herd {

struct ResourceShare {
  std::string name;
  double busy = 0;  // 0 .. 1
};

struct ScheduleTimes {
  double end_us = 0;                              // end of the last rank; all times count from the first rank's begin
  std::vector<std::vector<sim::TaskTime>> steps;  // [rank][step]
  std::vector<ResourceShare> resources;
};

struct CostOptions {
  // Elements of the whole message, where `all_ranks` carry only a part of it. It decides between the cache's and the
  // memory's rates, and into how many pieces messages are cut. 0 = all_ranks[0].elements.
  int64_t whole_message_elements = 0;
};

// Holds the rates of one host for an operation in bytes per us, and the factors by which some accesses cost more.
struct MemoryRates {
  double core, bus, peer_read = 1, peer_write = 1, shared_write = 1, stage_read = 1, stage_write = 1, message = 1;
};
// Returns the cache's rates where the cache holds what the host's ranks touch of a message: inputs and outputs. Stage
// memory is reused and stays small.
MemoryRates memory_rates(const Host& host, int64_t message_elements, DType dtype, bool in_place);

// Counts the pieces of a message between two ranks; while one is copied out, the next is on its way.
int num_message_pieces(double bytes, bool same_host, const Link& uplink);

// REQUIRES the ranks of `topology` to be those of `all_ranks`, and schedules that verify() passes. Throws kBadConfig
// where their steps wait for each other in a circle.
ScheduleTimes time_schedules(std::span<const Schedule> all_ranks, const Topology& topology, CostOptions options = {});

}  // namespace herd
