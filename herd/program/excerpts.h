// Programs that are parts of a step's: they hold the same values in the same slots, so they run on the memory of the
// step, between two steps.   Threads: pure.
#pragma once

#include <set>

#include "herd/program/program.h"

namespace herd::program {

// The losses of the step's micro-batches and nothing else: no graph, no gradient, no update; for validation.
// `step`: compiled, releases and slots included.
Program forward_only(const Program& step);

// The passes over some blocks for micro-batch 0, forward and backward, without what follows from gradients; for
// measurements. What other blocks would have given is received from nobody (peer -1): who runs this makes it up.
Program passes_over(const Program& step, const std::set<int>& blocks);

}  // namespace herd::program
