// Fills in what the run file leaves to herd, once for all ranks of a job. Threads: as Communicator.
#pragma once

#include <string>

#include "herd/comm/communicator.h"
#include "herd/planner/variants_that_fit.h"

namespace herd::train {

// Resolves strategy.auto, and strategy.prefetch and strategy.keep_whole = "auto" (planner/variants_that_fit.h), on the
// topology that the ranks share. Rank 0 chooses, and all get its choice. Collective. Every rank throws SharedError
// (shared_error.h), with what would fit, where strategy.auto finds nothing that fits memory.device_budget, or a run
// without it does not fit.
planner::ResolvedRun resolve_run(const spec::RunFile& run, Communicator& comm);

}  // namespace herd::train
