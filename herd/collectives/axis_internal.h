// One axis of a composition: the schedule of this rank's line on it, and its message. Threads: pure.
#pragma once

#include <vector>

#include "herd/collectives/compose.h"
#include "herd/collectives/composed.h"
#include "herd/collectives/grid.h"

namespace herd {

// A request to the line of ranks on the axis. `direct` says that its memory is the caller's.
CollectiveRequest axis_request(const CollectiveRequest& whole, const Grid& grid, int axis, Collective collective,
                               const AxisStyle& style, bool direct);

// Its schedule, by what the style and the kind of memory ask for.
Schedule axis_schedule(const CollectiveRequest& line, const AxisStyle& style);

// For each coordinate on the axis the ranks whose parts lie there while a gather has yet to do this axis and those
// below: the same coordinates as this rank below the axis, any above it (of these, axis + 1 the slowest).
std::vector<std::vector<Rank>> ranks_of_line(const Grid& grid, Rank rank, int axis);

}  // namespace herd
