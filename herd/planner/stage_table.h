// Says how a run's pipeline is cut, for herd plan --stages. Threads: any; it may read the order file that
// strategy.pipeline names.
#pragma once

#include <string>

#include "herd/spec/layout.h"

namespace herd::planner {

// Lists the blocks, parameters and arithmetic of each rank's stages, and the order over time; one sentence where the
// run has no pipeline.
std::string stages_text(const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::planner
