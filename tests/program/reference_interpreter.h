// Runs the programs of all ranks on exact integers, ops in a random legal order: lanes in order, derived hazards
// between them, collectives when all have come. Says what every rank holds at the end, or how it failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/program/program.h"

namespace herd::program::testing {

struct Result {
  std::string failure;  // empty, "hangs", "reads nothing", "collectives differ"
  std::vector<std::map<Value, std::vector<uint64_t>>> persistent;  // per rank: weights and states
  bool operator==(const Result&) const = default;
};

// seed 0 runs each rank's ops as early as possible in the order of the program.
Result interpret(const std::vector<Program>& programs, int shard_axis, int steps, uint64_t seed);

}  // namespace herd::program::testing
