// Draws an order of a pipeline: what each rank does when, in the units of spec/pipeline_order.h.
// Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"
#include "herd/spec/pipeline_order.h"

namespace herd::strategies {

// Draws for a terminal: a line per rank, a column per unit. "rank 1  .  F0 B0 == F1" does a forward of
// micro-batch 0 in unit 1, then its backward, whose second unit is "==". Passes are written as spec::to_text() writes
// them, but in lower case for the second stage of a rank. Lines below say how long ranks are idle, and
// how many passes wait in memory for their backward. Throws what times_of() throws.
std::string order_picture(const spec::PipelineOrder& order);

// Returns a row per rank; a unit is a microsecond.
sim::Timeline order_timeline(const spec::PipelineOrder& order);

}  // namespace herd::strategies
