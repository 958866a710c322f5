// Draws schedules: what each rank does when, by the times of cost.h. draw/timeline_picture.h turns the result into SVG
// or a trace for Perfetto. Threads: pure.
#pragma once

#include <span>

#include "herd/schedule/cost.h"
#include "herd/sim/timeline.h"

namespace herd {

// Returns a group per rank with a row for each of its lanes that has steps; categories are sends, receives and so on.
sim::Timeline timeline_of(std::span<const Schedule> all_ranks, const ScheduleTimes& times);

}  // namespace herd
