// Defines what a collective means: the memory of a rank, its inputs, and what it must hold at the end. It follows from
// the header alone, which is all members of a Schedule but `steps`. The verifier and the tests' interpreter check
// schedules against this. Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/parts.h"
#include "herd/schedule/schedule.h"

namespace herd {

bool has_root(Collective collective);      // true for broadcast, reduce, gather, scatter
bool is_reduction(Collective collective);  // true for all_reduce, reduce_scatter, reduce
// Returns true where parts may be uneven: gather, all_gather, scatter, reduce_scatter, all_to_all.
bool has_counts(Collective collective);

// Returns the number of elements that a space has on rank `owner`. It reads no steps, only the schedule's header; the
// sizes of scratch and stage are those of the schedule's own rank. Throws nothing.
int64_t space_size(const Schedule& header, Rank owner, Space space);

inline constexpr Rank kEveryRank = -1;

// Describes elements of one space that hold consecutive elements of the whole message.
struct MessagePiece {
  Space space = Space::kOutput;
  Range range;                    // in elements of that space
  int64_t message_begin = 0;      // element of the whole message at range.begin
  Rank contributor = kEveryRank;  // rank whose contribution it is; kEveryRank = the sum over all ranks
};

// Returns what the rank's input holds before the operation.
std::vector<MessagePiece> initial_contributions(const Schedule& header, Rank rank);
// Returns what the rank's output must hold after the operation.
std::vector<MessagePiece> expected_results(const Schedule& header, Rank rank);

}  // namespace herd
