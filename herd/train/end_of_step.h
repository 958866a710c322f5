// Sums what ranks report at the end of each step, so that all of them know the loss and whether to stop. Threads: as
// Communicator.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/comm/communicator.h"

namespace herd::train {

// Holds one rank's report, or after all_reduce_end_of_step() the sums and ORs over all ranks.
struct EndOfStep {
  double loss_sum = 0;                    // nats, over the tokens that count
  int64_t tokens = 0;                     // tokens that count
  bool stop = false;                      // a rank was asked to stop
  bool unsaved = false;                   // a rank's part of a checkpoint has failed
  std::vector<int64_t> expert_load = {};  // of each layer with experts, as take_expert_load() returns it
  double waited_ms = 0;                   // output: time in this all-reduce, mostly spent waiting for the slowest rank
};

// Returns the sums of loss_sum, tokens and expert_load, and the ORs of stop and unsaved, over all ranks. Collective;
// every rank gets the same values, except for waited_ms.
EndOfStep all_reduce_end_of_step(const EndOfStep& mine, Communicator& comm);

}  // namespace herd::train
