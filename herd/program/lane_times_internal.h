// Reads off a timeline when a lane of a rank is busy, and for how long others are at the same time. Threads: pure.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "herd/program/program.h"
#include "herd/sim/timeline.h"

namespace herd::program {

using TimeRanges = std::vector<std::pair<double, double>>;  // begins and ends in us: apart, in order

// Returns when a lane of the rank runs ops, or those whose spans `counts` takes.
TimeRanges times_of(const sim::Timeline& timeline, int rank, Lane lane,
                    const std::function<bool(const sim::Span&)>& counts = {});
double length(const TimeRanges& ranges);
double common_length(const TimeRanges& a, const TimeRanges& b);

}  // namespace herd::program
