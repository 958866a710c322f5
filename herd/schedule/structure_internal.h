// Defines what can be seen without running anything: headers that agree, steps of the right shape, slices inside their
// memory, sends and receives, signals and waits that match. Threads: pure.
#pragma once

#include <span>
#include <vector>

#include "herd/schedule/verify_schedule.h"

namespace herd {

std::vector<Finding> check_structure(std::span<const Schedule> all_ranks);

// Returns the step of the peer that each step meets: send with receive, signal with wait; -1 for local steps. REQUIRES
// check_structure() found nothing.
std::vector<std::vector<int>> match_steps(std::span<const Schedule> all_ranks);

}  // namespace herd
