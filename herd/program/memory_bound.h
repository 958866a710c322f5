// Counts the device, host and NVMe bytes that a program needs at most. Persistent values and slots always count. Other
// values count from the op that first writes them to their release, and scratch counts while its op runs. A graph, and
// what is pending, count until the backward that consumes them ends. A partial sum and the whole that is made of it in
// place count once (value_memory.h).
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include "herd/program/program.h"

namespace herd::program {

struct Peak {
  int64_t bytes = 0;  // by_kind + pool_bytes + scratch
  int op = -1;        // index in Program::ops of the op that runs then; -1 = what always counts is the peak
  std::map<ValueKind, int64_t> by_kind = {};  // bytes of values outside of pools
  int64_t pool_bytes = 0;                     // bytes of the slots that pooled values share
};

// Returns a line for each kind, "  states 1.21 GiB", then one for pools and one for scratch where they hold any.
std::string memory_table(const Peak& peak);

// Returns the slots that only delay what fills them, since the value has memory of its own: those that receives alone
// fill, and those of activations on the device.
std::set<int> slots_of_received(const Program& step);

// Returns the peak of a tier when ops run one by one in the order of the program. It is exact where ops
// really run one at a time in that order.
Peak in_order_peak(const Program& step, Tier tier);

// Returns a bound that no legal order of the ops exceeds. Memory grows only where an op that takes some starts. At each
// such op, and at every op of the compute lane, it counts all values that are neither surely released before it nor
// surely first written after it (op_order.h). It adds the scratch of the op and of ops that may run beside it.
// A receive may start long before its message comes, beside many ops, so nothing is counted at receives. What is
// received counts from the last counted op before its receive on, once for all that share a slot.
// `others` are programs of any ranks; those that this rank exchanges messages with make the bound tighter. A message
// received from a rank that first had to receive ours proves that ours has left. Without them, all that a stage sends
// may wait until the step ends.
// It takes O(ops * lanes * log ops) time: 0.2 s for 50,000 ops. Throws as OpOrder does.
Peak peak_bound(const Program& step, Tier tier, std::span<const Program> others = {});

}  // namespace herd::program
