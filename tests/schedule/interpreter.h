// Runs the schedules of all ranks in one thread on exact integers, in a random order that honours derive_dependencies
// and first in, first out matching, and nothing else. What the verifier says is measured against this.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "herd/schedule/schedule.h"

namespace herd::testing_support {

enum class Verdict : uint8_t { kRight, kWrong, kStuck };

struct RunOptions {
  uint64_t seed = 1;
  bool buffered = true;  // a send ends at once; false: when its receive takes it
  int operations = 4;    // back to back; in between each user rewrites its memory
};

struct RunResult {
  Verdict verdict = Verdict::kRight;
  std::string why = {};
};

RunResult interpret(std::span<const Schedule> all_ranks, const RunOptions& options);

}  // namespace herd::testing_support
