// Ranks as threads of this process, over the same rings, signals and doorbells as processes. For tests and benches.
#pragma once

#include <functional>
#include <vector>

#include "herd/comm/communicator.h"

namespace herd::comm {

// Runs `body` on num_ranks threads, each with the world's Communicator, and waits for all. The first exception (by
// rank) is thrown again; a rank that throws is gone for its peers.
// host_of: by rank, numbered from 0 in the order of their first ranks. Ranks of different hosts map none of each
// other's memory and send each other frames, as in a job on several hosts. Empty: one host.
void run_inproc(int num_ranks, const std::function<void(Communicator&)>& body, const std::vector<int>& host_of = {});

}  // namespace herd::comm

namespace herd {
using comm::run_inproc;
}  // namespace herd
