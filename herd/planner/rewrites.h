// Searches for the techniques that make a run fit its memory, among the automatic ones of the table (ZeRO, recompute,
// more micro-batches, inputs gathered again). None of them changes a result beyond the order of sums. Each combination
// is built as the program that would run, and its memory is bounded; those that fit are simulated, and what is proposed
// is proved on all ranks as herd train proves it. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "herd/planner/suggestions.h"

namespace herd::planner {

struct Rewrite {
  std::vector<std::string> changes;  // overrides of the run file, "strategy.zero=3"; none where it fits as it is
  spec::RunFile run;                 // the run file with these changes
  Prediction prediction;             // what is predicted of that run
};

struct Rewrites {
  Prediction today;                // what is predicted of the run as it is
  std::vector<Rewrite> fitting;    // cheapest first: [0] is what strategy.auto takes; each of the others needs less
                                   // memory or fewer changes than all before it
  std::optional<Rewrite> nearest;  // where nothing fits: the one that needs least memory; its times are not known
  std::optional<Rewrite> in_bf16;  // bf16 in place of fp32 and nothing else: an offer apart, since results change
  int built = 0;                   // how many programs the search has built
};

// Cheapest = the shortest step predicted; of steps within 1 % of it the one with fewest changes, then least memory.
// `built` = 0 where no program can be built of the run (why_no_program()).
Rewrites rewrites_that_fit(const spec::RunFile& run, int ranks, const Cluster& cluster, const Budget& budget);

// What an error about memory ends with: lines that begin with a line break.
std::string advice(const Rewrites& rewrites, const Budget& budget);

// Fills in the numbers of techniques that are left to herd, like how ZeRO-3 gathers: strategy.prefetch, as many buffers
// for gathered weights as make its step shortest within the budget, then strategy.keep_whole, as many groups kept
// whole; of each the smallest within 1 % of the best. Without a device budget groups are kept whole as far as that
// costs no memory. What AutoNumber::otherwise says where they don't count, or the step is too long to simulate.
spec::RunFile with_numbers(spec::RunFile run, int ranks, const Cluster& cluster, const Budget& budget);

// A run file with nothing left to herd.
struct ResolvedRun {
  spec::RunFile run;
  // What strategy.auto took and what is predicted of it, and the numbers that were left to herd: one line; empty where
  // nothing was left to herd.
  std::string choice;
};

// strategy.auto takes the cheapest rewrite that fits; numbers that are "auto" what with_numbers() says. The same for
// the same arguments, whatever a run measured of the machines: herd plan says on a run's cluster file what the run
// chose before it had one. Throws kOverBudget with advice() where nothing fits, kBadConfig where no program can be
// built.
ResolvedRun resolve(const spec::RunFile& run, int ranks, const Cluster& cluster, const Budget& budget);

}  // namespace herd::planner
