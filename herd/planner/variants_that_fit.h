// Searches for the techniques that make a run fit its memory, among the automatic ones of the table: ZeRO, recompute,
// more micro-batches, gathering sequence-parallel inputs again in backward. None of them changes a result beyond the
// order of sums. Each combination is built as the program that would run, and its memory is bounded. Those that fit are
// simulated, and what is proposed is proved on all ranks as herd train proves it. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/planner/search_limit.h"
#include "herd/planner/suggestions.h"

namespace herd::planner {

// Holds changes of a run file's keys, and the prediction for the changed run.
struct Variant {
  std::vector<std::string> changes;  // overrides of the run file, "strategy.zero=3"; none where the run fits as it is
  spec::RunFile run;                 // the run file with these changes
  Prediction prediction;             // prediction of that run
  std::string_view result_change = {};  // what the change does to results, as text; empty = only the order of sums
};

// Holds what a search found for one run.
struct Variants {
  Prediction unchanged;  // prediction of the run as it is
  // Lists variants that fit, cheapest first: strategy.auto takes [0]; each other one needs less memory or fewer changes
  // than all before it.
  std::vector<Variant> fitting;
  // Holds the variant that needs least device memory, where none fits; its times are not known.
  std::optional<Variant> least_memory;
  // Where none of these fits: variants that do by one more key, of a technique that no equation covers (weights in a
  // window, activations on the host, experts on several ranks), in the same order.
  std::vector<Variant> by_one_more;
  // Lists variants that change one key to a value that changes results (strategy.precision=bf16), fitting or not.
  std::vector<Variant> with_other_results;
  int built = 0;  // how many programs of the run and of its automatic variants the search has built
};

// Finds the variants. Cheapest means the shortest predicted step; of steps within 1 % of it the one with fewest
// changes, then with least memory. `built` = 0 where no program can be built for the run (why_no_program()).
// A search that `limit` stops has fewer variants, and none that is not proved. Borrows `limit`; null = no limit.
Variants variants_that_fit(const spec::RunFile& run, int ranks, const Cluster& cluster, const Budget& budget,
                           SearchLimit* limit = nullptr);

// Returns the end of an error about memory: lines, each of which a line feed begins.
std::string advice(const Variants& variants, const Budget& budget);

// Sets the numbers of techniques that are "auto" (AutoNumber, strategies/technique.h), as for ZeRO-3: first
// strategy.file_layers, the layers in files that the host's budget asks for, then strategy.prefetch, the buffers for
// gathered weights, then strategy.keep_whole, the groups kept whole. Each gets the
// smallest value within 1 % of the shortest step that fits the budget. Without a device budget, groups are kept whole
// as far as that costs no memory. A number that does not apply to the run, or whose step is too long to simulate, gets
// AutoNumber::value_if_inapplicable. A `limit` that is over leaves a key the best value so far; null = no limit.
// Then a strategy.direct_host that is "auto" gets the layers at the ends of the chain that make the step shortest.
spec::RunFile with_numbers(spec::RunFile run, int ranks, const Cluster& cluster, const Budget& budget,
                           SearchLimit* limit = nullptr);

// Holds a run file in which nothing is "auto".
struct ResolvedRun {
  spec::RunFile run;
  // Says in one line what strategy.auto took, its prediction, and the numbers that were "auto"; empty where nothing
  // was.
  std::string summary;
};

// Applies the cheapest variant that fits where strategy.auto is set, and with_numbers(). It leaves out what a run has
// measured of `cluster`. So herd plan with the cluster file that a run wrote returns what that run chose, which had no
// measurements yet. Throws kOverBudget with advice() where nothing fits, kBadConfig where no program can be built.
// A `limit` may stop the search for the cheapest variant and for numbers; herd train has none.
ResolvedRun resolve(const spec::RunFile& run, int ranks, const Cluster& cluster, const Budget& budget,
                    SearchLimit* limit = nullptr);

}  // namespace herd::planner
