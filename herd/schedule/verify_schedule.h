// Proves a schedule: runs the steps of all ranks on symbols, several operations back to back, and says what is wrong.
// Checked, whatever the order in which steps really run (it follows derive_dependencies and the matching alone):
//   meaning    every result holds every contribution it should, exactly once, complete exactly once, and in the same
//              order of additions on every rank, so the same bits
//   memory     no two accesses to the same elements of any rank, one of them a write, without an order between them
//              (vector clocks); between operations the user rewrites inputs and outputs, stage memory alternates
//   definition nothing is read that this operation did not write or was not given; inputs stay as they were
//   progress   no deadlock, even if a send ends only when its receive takes it
//   matching   every send meets a receive of the same size, every signal a wait
//   stage      in a barrier no rank is done before every rank has begun; nor, among ranks that touch each other's stage
//              memory, directly or through others, before these have
// What is expected comes from collective, elements, num_ranks, root and in_place, never from the steps.
//   Cost: about steps * lanes of all ranks; counts of elements cost nothing.
// Threads: pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/schedule/schedule.h"

namespace herd {

struct Finding {
  Rank rank = -1;  // -1: no single one
  int step = -1;   // index in that rank's steps; -1: no single one
  std::string what;
};

// "rank 2, step 7 (copy ..): reads .. "
std::string describe(const Finding& finding);

// Empty: the schedules are right. all_ranks[r] is the schedule of rank r. Never throws for what a schedule may hold;
// stops after a handful of findings.
std::vector<Finding> verify(std::span<const Schedule> all_ranks);

}  // namespace herd
