// Defines how a run's pipeline is cut, for herd plan --stages.   Threads: any (an order in a file is read).
#pragma once

#include <string>

#include "herd/spec/layout.h"

namespace herd::planner {

// The blocks, parameters and arithmetic of each rank's stages, and the order over time. One sentence where the run has
// no pipeline.
std::string stages_text(const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::planner
