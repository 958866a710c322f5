// Priority of gradients: what the next step's forward needs first comes back first, and updates run beside that
// forward. Block 0's gradient is complete last, and first-come-first-served it is also reduced last.
//   A gradient is reduced in partitions of at most `partition_bytes`, each an op of its own. Or it is pushed in them to
//   parameter servers, which update each by itself, and its pull follows. After each backward pass at most `credit`
//   partitions are handed over, those of the block that runs first in front; what is left waits for more urgent ones,
//   and goes in that order after the last backward. So credit = 0 leaves the link idle during backward, and a very
//   large credit is first come, first served. The right one lets the link do what it can, and no
//   more: credit = link rate * time of a backward / partition_bytes. The order is static and the same on all ranks. A
//   group's update follows its last partition, on lane update, so the next forward of a block waits for its own groups
//   alone. Steady, a step takes
//     max(compute, communication)                       in the best case, where
//     forward + max(backward, communication) + updates  is what it takes first come, first served.
//   Where updates wait for the norm of all gradients (needs_norm()), only the order of reductions changes.
//   Sums, and so bits, are those of the same algorithm over other ranges.
// Source: Peng et al. 2019, "A Generic Communication Scheduler for Distributed DNN Training Acceleration", SOSP
//   (ByteScheduler); Jayarajan et al. 2019, arXiv:1905.03960 (P3).   Threads: pure.
#pragma once

#include <cstdint>
#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

struct PriorityRules {
  int64_t partition_bytes = 4 << 20;  // 0 = gradients are not cut
  int64_t credit = 4;                 // partitions that are handed over after each backward pass
  bool updates_wait = false;          // true: updates wait for all gradients, and stay at the end of the step
};

class Priority final : public Strategy {
 public:
  explicit Priority(const PriorityRules& rules) : rules_(rules) {}
  std::string name() const override;
  // REQUIRES gradients that are all-reduced, or pushed to parameter servers.
  program::Program rewrite(program::Program step) const override;

 private:
  PriorityRules rules_;
};

// Tells whether the run asks for it and has gradients to order.
bool has_priority(const spec::RunFile& run, const spec::Layout& layout);

Technique priority_row();  // applies where strategy.schedule is "priority"

}  // namespace herd::strategies
