// Checks, before anything is started, whether comm.algorithm of the run file can sum the gradients of a layout.
#pragma once

#include <optional>

#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/topology/topology.h"

namespace herd::planner {

// Throws kBadConfig for a name that no all-reduce has, with the valid names. Throws it with the reason where the
// algorithm can't serve the ranks that all-reduce gradients, and where ranks sum them by reduce-scatters
// alone. `topology` is
// that of all ranks; where it is not known yet, it checks the name alone. Threads: pure.
void check_gradient_algorithm(const spec::RunFile& run, const spec::Layout& layout,
                              const std::optional<Topology>& topology);

}  // namespace herd::planner
