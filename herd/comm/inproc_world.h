// Ranks as threads of this process, over the same rings, signals and doorbells as processes. For tests and benches.
#pragma once

#include <functional>

#include "herd/comm/communicator.h"

namespace herd {

// Runs `body` on num_ranks threads, each with the world's Communicator, and waits for all. The first exception (by
// rank) is thrown again; a rank that throws is gone for its peers.
void run_inproc(int num_ranks, const std::function<void(Communicator&)>& body);

}  // namespace herd
