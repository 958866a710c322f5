// Small wrong versions of a set of schedules, to see whether a checker notices. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/schedule/schedule.h"

namespace herd::testing_support {

enum class MutationKind : uint8_t {
  kDrop,
  kDuplicate,
  kSwapWithNext,
  kWrongPeer,
  kShiftSlice,
  kShrinkSlice,
  kFlipCompletes
};

struct Mutation {
  MutationKind kind;
  Rank rank = 0;
  int step = 0;
  int slice = 0;  // kShiftSlice, kShrinkSlice: sources first, then targets
};

// Every mutation that changes something.
std::vector<Mutation> all_mutations(std::span<const Schedule> all_ranks);
std::vector<Schedule> mutated(std::span<const Schedule> all_ranks, const Mutation& mutation);
std::string describe(std::span<const Schedule> all_ranks, const Mutation& mutation);  // "rank 1 step 4 drop: send ..."

}  // namespace herd::testing_support
