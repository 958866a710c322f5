// An order of a pipeline as a picture: what each rank does when, in the units of spec/pipeline_order.h.
// Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"
#include "herd/spec/pipeline_order.h"

namespace herd::strategies {

// For a terminal: a line a rank, a column a unit, passes as to_text() writes them but those of the second stage of a
// rank in lower case; "==" is the second unit of a whole backward. Below it how long ranks are idle, and how many
// passes wait in memory for their backward. Throws what times_of() throws.
std::string order_picture(const spec::PipelineOrder& order);

// A row a rank; a unit is a microsecond.
sim::Timeline order_timeline(const spec::PipelineOrder& order);

}  // namespace herd::strategies
