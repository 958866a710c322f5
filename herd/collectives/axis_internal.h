// Makes the schedule of one axis of a composition, for the line of ranks that this rank is in, and its message.
// Threads: pure.
#pragma once

#include <vector>

#include "herd/collectives/compose.h"
#include "herd/collectives/composed.h"
#include "herd/collectives/grid.h"

namespace herd {

// Returns the request to the line of ranks on the axis. `direct` says that its memory is the caller's.
CollectiveRequest axis_request(const CollectiveRequest& whole, const Grid& grid, int axis, Collective collective,
                               const AxisStyle& style, bool direct);

// Returns the line's schedule, by what the style and the kind of memory ask for.
Schedule axis_schedule(const CollectiveRequest& line, const AxisStyle& style);

// Returns, for each coordinate on the axis, the ranks whose parts lie there before a gather does this axis and those
// below. They have this rank's coordinates below the axis, and any above it, of which axis + 1 counts slowest.
std::vector<std::vector<Rank>> ranks_of_line(const Grid& grid, Rank rank, int axis);

}  // namespace herd
