// Defines what a collective means, from its header alone: the memory of a rank, its inputs, and what it must hold at
// the end. The verifier and the tests' interpreter check schedules against this. Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/parts.h"
#include "herd/schedule/schedule.h"

namespace herd {

bool has_root(Collective collective);  // true for broadcast, reduce, gather, scatter
bool adds_up(Collective collective);   // true for all_reduce, reduce_scatter, reduce
// Returns true where parts may be uneven: gather, all_gather, scatter, reduce_scatter, all_to_all.
bool has_counts(Collective collective);

// Returns the elements that `owner` has in a space. It reads the schedule's header alone; scratch and stage sizes are
// those of the schedule's own rank. Throws nothing.
int64_t space_size(const Schedule& header, Rank owner, Space space);

inline constexpr Rank kEveryRank = -1;

// Describes elements of one space that hold a stretch of the whole message.
struct Placed {
  Space space = Space::kOutput;
  Range range;           // in elements of that space
  int64_t first = 0;     // element of the whole message at range.begin
  Rank of = kEveryRank;  // rank whose contribution it is; kEveryRank = the complete sum of all
};

std::vector<Placed> given_to(const Schedule& header, Rank rank);       // returns the contributions before the operation
std::vector<Placed> expected_from(const Schedule& header, Rank rank);  // returns what the rank must hold after it

}  // namespace herd
