// Times the schedules of all ranks on a topology, with the event engine: a step is work for its rank's thread, that
// shares the host's cores, memory and uplink with everybody else's. So more ranks than cores share cores.
//   copy, reduce       bytes read and written at a core's rate, within the memory's (the cache's, where all that the
//                      schedules touch on a host fits; there bytes of peers and of the stage count by the host's
//                      factors, and so do bytes stored to own memory that a peer has read)
//   message, one host  a copy into shared memory and one out of it, in up to 16 overlapping pieces; message_us of both
//                      ends' work, beside signal_us until its receiver sees it
//   message, between   the sender's uplink, the receiver's, the tiers and the spine above them, or every link of its
//                      route on a torus or mesh; then a copy out. Both ends' cores for message_us, and for its bytes
//                      where the uplink says what a core passes (topology.h: Link).
//                      An uplink that lets bursts pass (topology.h: Link) is in the state that operations like this
//                      one leave it in, where the gap between two lasts as long as one
//   signal             the host's signal_us until the wait sees it, while the waiting rank may do something else
// Where ranks outnumber a host's cores, neighbours share one and take turns on it, with turn_us between: who waits
// gives it away. What a rank sends to other hosts is the network's work, and waits for no turn.   Threads: pure.
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
  double end_us = 0;                              // of the last rank; all times count from the first rank's begin
  std::vector<std::vector<sim::TaskTime>> steps;  // [rank][step]
  std::vector<ResourceShare> resources;
};

struct CostOptions {
  // Elements of the message that decide whether the cache holds it; 0 = those of the schedules.
  int64_t footprint_elements = 0;
};

// REQUIRES the ranks of `topology` to be those of `all_ranks`, and schedules that verify() passes: throws kBadConfig
// where their steps wait for each other in a circle.
ScheduleTimes time_schedules(std::span<const Schedule> all_ranks, const Topology& topology, CostOptions options = {});

}  // namespace herd
