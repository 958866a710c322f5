// Times the schedules of all ranks on a topology, with the event engine. A step is work for its rank's thread, which
// shares the host's cores, memory and uplink with all other ranks.
//   copy, reduce       takes its bytes read and written at a core's rate, within the memory's rate. Where the cache
//                      holds all that the schedules touch on a host, it takes the cache's rates. Bytes of peers, of the
//                      stage, and stored to own memory that a peer has read then count by the host's factors.
//   message, one host  is a copy into shared memory and one out of it, in up to 16 overlapping pieces. It takes
//                      message_us of both ends' cores, and signal_us until its receiver sees it.
//   message, between   passes the sender's uplink, the receiver's, the tiers and the spine above them, or every link of
//                      its route on a torus or mesh. Then it is copied out. It takes message_us of both ends' cores,
//                      and a time for its bytes where the uplink says what a core passes (topology.h: Link).
//                      An uplink that lets bursts pass begins as if operations like this one had run before, each
//                      after a gap as long as one operation.
//   signal             takes the host's signal_us until the wait sees it; the waiting rank may do something else.
// Where ranks outnumber a host's cores, neighbours share one and take turns on it, with turn_us between; a rank that
// waits gives its turn away. The network alone carries what a rank sends to other hosts; that waits for no turn.
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
  // Elements of the message, which decide whether the cache holds it; 0 = those of the schedules.
  int64_t footprint_elements = 0;
};

// REQUIRES the ranks of `topology` to be those of `all_ranks`, and schedules that verify() passes. Throws kBadConfig
// where their steps wait for each other in a circle.
ScheduleTimes time_schedules(std::span<const Schedule> all_ranks, const Topology& topology, CostOptions options = {});

}  // namespace herd
