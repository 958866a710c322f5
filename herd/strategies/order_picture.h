// Draws an order of a pipeline: what each rank does when, in the units of spec/pipeline_order.h.
// Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"
#include "herd/spec/pipeline_order.h"

namespace herd::strategies {

// Draws for a terminal: a line per rank, a column per unit. Passes are written as by to_text(), but in lower case for
// the second stage of a rank. "==" is the second unit of a whole backward. Lines below say how long ranks are idle, and
// how many passes wait in memory for their backward. Throws what times_of() throws.
std::string order_picture(const spec::PipelineOrder& order);

// Returns a row per rank; a unit is a microsecond.
sim::Timeline order_timeline(const spec::PipelineOrder& order);

}  // namespace herd::strategies
