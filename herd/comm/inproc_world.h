// Runs ranks as threads of this process, over the same rings, signals and doorbells as processes; for tests and
// benches, and for one rank by itself. Threads: any.
#pragma once

#include <functional>
#include <vector>

#include "herd/comm/communicator.h"

namespace herd::comm {

// Runs `body` on num_ranks threads, each with the world's Communicator, and waits for all. A rank that throws is gone
// for its peers. Rethrows the exception of the lowest rank that threw for a reason of its own, not since it lost a
// peer. host_of[r] is the host of rank r, where hosts count from 0 in the order of their first ranks; empty: one host.
// Ranks of different hosts map none of each other's memory and send each other frames, as in a job on several hosts.
void run_inproc(int num_ranks, const std::function<void(Communicator&)>& body, const std::vector<int>& host_of = {});

// Makes a world of this rank alone, whatever the environment says: for a process that works by itself.
Communicator world_of_one();

}  // namespace herd::comm

namespace herd {
using comm::run_inproc;
using comm::world_of_one;
}  // namespace herd
