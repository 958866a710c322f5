// What a step of a schedule costs its rank's thread beside the bytes it moves (topology.h's Host::step_us): 64 copies
// of one element, one after the other, by the code that runs an operation's. What a signal, a wait or a message costs
// beyond that, barriers and rings of messages tell (host_probe.h). Threads: one at a time.
#pragma once

#include "herd/comm/compiled_schedule.h"
#include "herd/comm/operation.h"
#include "herd/transport/channel.h"

namespace herd::cli {

class StepProbe {
 public:
  // Uses the channel for nothing but who this rank is: it may be busy with operations of its own.
  explicit StepProbe(transport::Channel& channel);
  double us();  // the least of some runs, since others may take the core in one of them

 private:
  comm::CompiledSchedule program_;
  comm::Operation operation_;
};

}  // namespace herd::cli
