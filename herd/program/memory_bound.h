// Device, host and NVMe bytes that a program needs. Persistent values and slots always count; other values from the op
// that first writes them to their release; scratch while its op runs.
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "herd/program/program.h"

namespace herd::program {

struct Peak {
  int64_t bytes = 0;
  int op = -1;                                // where in the step
  std::map<ValueKind, int64_t> by_kind = {};  // of values; scratch and the buffers of pools are the rest
  int64_t pool_bytes = 0;                     // of that
};

// A line per kind, "  states 1.21 GiB", and what scratch adds to them.
std::string memory_table(const Peak& peak);

// Peak of a tier when ops run one by one in the order of the program: exact for programs whose lanes run in step.
Peak in_order_peak(const Program& step, Tier tier);

// No legal order exceeds it. Memory grows only where an op that takes some starts: for each such op, all values that
// are neither surely released before it nor surely born after (op_order.h), and the scratch of what may run beside it.
// `others`: programs of ranks that this one exchanges messages with, among any. What has arrived from them says what
// they have received: without them, all that a stage of a pipeline sends may wait to leave until the step ends.
// Time O(ops * lanes * log ops): 0.2 s for 50,000 ops.
Peak peak_bound(const Program& step, Tier tier, std::span<const Program> others = {});

}  // namespace herd::program
