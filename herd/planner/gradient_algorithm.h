// Checks, before anything is started, whether comm.algorithm of the run file can sum the gradients of a layout.
#pragma once

#include <optional>

#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/topology/topology.h"

namespace herd::planner {

// Throws kBadConfig for a name that no all-reduce has, with the valid names. Also throws it where the algorithm can't
// serve the ranks that all-reduce gradients, with the reason, and where no rank all-reduces them. `machines` are those
// of all ranks; where they are not known yet, it checks the name alone. Threads: pure.
void check_gradient_algorithm(const spec::RunFile& run, const spec::Layout& layout,
                              const std::optional<Topology>& machines);

}  // namespace herd::planner
