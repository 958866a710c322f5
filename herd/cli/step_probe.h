// What any step of a schedule costs its rank's thread beside the bytes it moves (topology.h's Host::step_us): copies of
// one element each, run as those of an operation are. Threads: one at a time.
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
