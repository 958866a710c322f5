// Proves a schedule: runs the steps of all ranks on symbols, several operations back to back, and says what is wrong. A
// proof holds in whatever order steps run, since it rests on derive_dependencies() and the matching alone. It checks:
//   meaning    every result holds every contribution it should, exactly once, completed exactly once, and summed in
//              the same order on every rank, so that all have the same bits
//   memory     two accesses to the same elements of any rank, one of them a write, have an order between them
//              (vector clocks); between operations the user rewrites inputs and outputs, stage memory alternates
//   definition nothing is read that this operation did not write or was not given; inputs stay as they were
//   progress   no deadlock, even if a send ends only when its receive takes it
//   matching   every send meets a receive of the same size, every signal a wait
//   stage      in a barrier no rank is done before every rank has begun; nor, among ranks that touch each other's stage
//              memory, directly or through others, before these have
// The header alone says what is expected: collective, elements, num_ranks, root and in_place, never the steps.
//   Cost: about steps * lanes of all ranks; counts of elements cost nothing.
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
