// Defines what the ranks tell each other when a step is done. Threads: as Communicator.
#pragma once

#include <cstdint>

#include "herd/comm/communicator.h"

namespace herd::train {

// Each rank passes its own values, and gets those of all ranks.
struct EndOfStep {
  double loss_sum = 0;   // nats, over the tokens that count
  int64_t tokens = 0;    // tokens that count
  bool stop = false;     // a rank was asked to stop
  bool unsaved = false;  // a rank's part of a checkpoint has failed
  double waited_ms = 0;  // output: wait for the slowest rank, and for the message
};

// Collective. Every rank gets the same, except for waited_ms.
EndOfStep meet_at_end_of_step(const EndOfStep& mine, Communicator& comm);

}  // namespace herd::train
