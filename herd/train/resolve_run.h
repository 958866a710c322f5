// Fills in what the run file leaves to herd, once for all ranks of a job.
#pragma once

#include <string>

#include "herd/comm/communicator.h"
#include "herd/planner/rewrites.h"

namespace herd::train {

// strategy.auto, strategy.prefetch and strategy.keep_whole = "auto" (planner/rewrites.h), on the topology that the
// ranks share: rank 0 chooses, all get its choice. Collective. Where nothing fits memory.device_budget, or the run as
// it stands does not, every rank throws SharedError with what would.
planner::ResolvedRun resolve_run(const spec::RunFile& run, Communicator& comm);

}  // namespace herd::train
