// Schedules as pictures: what each rank does when, by the times of cost.h. draw/timeline_picture.h turns the result
// into SVG or a trace for Perfetto. Threads: pure.
#pragma once

#include <span>

#include "herd/schedule/cost.h"
#include "herd/sim/timeline.h"

namespace herd {

// A group per rank, a row per lane of it that has steps; sends, receives, .. are categories.
sim::Timeline timeline_of(std::span<const Schedule> all_ranks, const ScheduleTimes& times);

}  // namespace herd
