// Makes programs that are parts of a step's program. They hold the same values in the same slots, so they run on the
// step's memory between two steps. Threads: pure.
#pragma once

#include <set>

#include "herd/program/program.h"

namespace herd::program {

// Returns the losses of the step's micro-batches and nothing else: no graph, no gradient, no update; for validation.
// REQUIRES a compiled `step`, with releases and slots.
Program forward_only(const Program& step);

// Returns the passes over some blocks for micro-batch 0, forward and backward, without the ops that use gradients; for
// measurements. Inputs from other blocks are received from peer -1: whoever runs this makes them up.
Program passes_over(const Program& step, const std::set<int>& blocks);

}  // namespace herd::program
