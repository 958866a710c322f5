// Proves a schedule: runs the steps of all ranks on symbols, several operations back to back, and says what is wrong. A
// proof holds in whatever order steps run, since it rests on derive_dependencies() and the matching alone. It checks:
//   meaning     Every result holds every contribution that it should, exactly once, and is completed exactly once. All
//               ranks sum in the same order, so all have the same bits.
//   races       Any two accesses to the same elements, one of them a write, have an order (vector clocks). Between
//               operations the user rewrites inputs and outputs, and stage memory alternates.
//   definition  No step reads what this operation did not write or was not given; inputs stay as they were.
//   progress    There is no deadlock, even if a send ends only when its receive takes it.
//   matching    Every send meets a receive of the same size, every signal a wait.
//   barrier     No rank is done before every rank has begun.
//   stage       No rank is done before all ranks with which it shares stage memory, directly or through others, have
//               begun.
// The header alone says what is expected: collective, elements, num_ranks, root and in_place, never the steps.
//   Cost: O(steps * lanes) over all ranks, whatever the number of elements (lanes: step_dependencies.h).
// Threads: pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/schedule/schedule.h"

namespace herd {

struct Finding {
  Rank rank = -1;  // -1: no single rank
  int step = -1;   // index in that rank's steps; -1: no single one
  std::string what;
};

// Returns "rank 2, step 7 (copy ..): reads .. ".
std::string describe(const Finding& finding);

// Returns nothing where the schedules are right; all_ranks[r] is the schedule of rank r. It never throws for what a
// schedule may hold, and stops after a handful of findings.
std::vector<Finding> verify(std::span<const Schedule> all_ranks);

}  // namespace herd
