// Defines what the ranks tell each other when a step is done.
#pragma once

#include <cstdint>

#include "herd/comm/communicator.h"

namespace herd::train {

struct EndOfStep {
  double loss_sum = 0;   // nats, over the tokens that count; in: of this rank, out: of all
  int64_t tokens = 0;    // that count
  bool stop = false;     // in: this rank was asked to stop, out: any was
  bool unsaved = false;  // in: this rank's part of a checkpoint has failed, out: any has
  double waited_ms = 0;  // out: for the slowest rank, and for the message
};

// Collective: the same call on every rank, the same answer on every rank, waited_ms excepted.
EndOfStep meet_at_end_of_step(const EndOfStep& mine, Communicator& comm);

}  // namespace herd::train
