// comm.algorithm of the run file, before anything is started: whether the gradients of this layout can be summed by it.
#pragma once

#include <optional>

#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/topology/topology.h"

namespace herd::planner {

// Throws kBadConfig for a name that no all-reduce has, listing those that there are, whatever the number of ranks; and
// where the algorithm can't serve the ranks that sum gradients, with the reason. `machines` are those of all ranks;
// none = not known yet, so that the name alone counts.   Threads: pure.
void check_gradient_algorithm(const spec::RunFile& run, const spec::Layout& layout,
                              const std::optional<Topology>& machines);

}  // namespace herd::planner
