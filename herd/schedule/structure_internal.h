// Checks what can be seen of schedules without running them. Headers must agree, steps have the right shape, and slices
// lie inside their memory. Sends and receives must match, and so must signals and waits. Threads: pure.
#pragma once

#include <span>
#include <vector>

#include "herd/schedule/verify_schedule.h"

namespace herd {

// Returns what is wrong; nothing where all rules hold. Never throws for what a schedule may hold.
std::vector<Finding> check_structure(std::span<const Schedule> all_ranks);

// Returns, by rank and step, the peer's step that it meets: a send meets a receive, a signal a wait; -1 for local
// steps. REQUIRES that check_structure() finds nothing.
std::vector<std::vector<int>> match_steps(std::span<const Schedule> all_ranks);

}  // namespace herd
