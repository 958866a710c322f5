// Lets the ranks of a job meet to write one checkpoint, over a group of their own. So the writing thread never disturbs
// the order of training's operations. Threads: one at a time.
#pragma once

#include <memory>

#include "herd/checkpoint/peers.h"
#include "herd/comm/communicator.h"

namespace herd {

// Splits `comm`, so it is collective. Each call of the result waits up to `timeout` for the slowest rank's disk.
std::unique_ptr<CheckpointPeers> checkpoint_peers(Communicator& comm, std::chrono::milliseconds timeout);

}  // namespace herd
