// Defines how the ranks of a job meet to write one checkpoint: over a group of their own, so that the thread that
// writes behind never gets between the operations of training.
#pragma once

#include <memory>

#include "herd/checkpoint/peers.h"
#include "herd/comm/communicator.h"

namespace herd::train {

// Splits `comm`: collective. A call waits up to `timeout` for the slowest rank's disk.
std::unique_ptr<CheckpointPeers> checkpoint_peers(Communicator& comm, std::chrono::milliseconds timeout);

}  // namespace herd::train
