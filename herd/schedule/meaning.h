// Defines what a collective means, from its header alone: which memory a rank has, what it is given, what it must hold
// at the end. The verifier and the tests' interpreter measure schedules against this. Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/parts.h"
#include "herd/schedule/schedule.h"

namespace herd {

bool has_root(Collective collective);    // broadcast, reduce, gather, scatter
bool adds_up(Collective collective);     // all_reduce, reduce_scatter, reduce
bool has_counts(Collective collective);  // parts may be uneven: gather, all_gather, scatter, reduce_scatter, all_to_all

// Elements of a space that `owner` has. Throws nothing; of the schedule only the header is read, scratch and stage
// sizes being those of the schedule's own rank.
int64_t space_size(const Schedule& header, Rank owner, Space space);

inline constexpr Rank kEveryRank = -1;

struct Placed {
  Space space = Space::kOutput;
  Range range;           // in that space
  int64_t first = 0;     // element of the whole message at range.begin
  Rank of = kEveryRank;  // whose contribution; kEveryRank = the complete sum of all
};

std::vector<Placed> given_to(const Schedule& header, Rank rank);       // contributions, before the operation
std::vector<Placed> expected_from(const Schedule& header, Rank rank);  // after it

}  // namespace herd
