// Finds what would make a run fit its budget: changes of the run file, each with what it is predicted to cost.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/planner/prediction.h"

namespace herd::planner {

struct Budget {
  int64_t device = 0, host = 0;  // bytes of a rank; 0 = no limit
  bool holds(const Prediction& prediction) const;
};

struct Suggestion {
  std::vector<std::string> changes;  // as herd plan and herd train take them: "strategy.zero=3"
  int ranks = 1;
  Prediction prediction;  // by equations
  std::string not_built;  // what this version can't run of it; empty = herd train takes it
};

struct Search {
  Budget budget;
  double time_scale = 1;          // of the equations' times: what is known better of the run as it is
  bool other_techniques = false;  // leave out what rewrites.h answers: changes of automatic keys alone
  bool more_ranks = false;        // also twice, four times, .. as many ranks, until something fits
};

// Simulated time over that of the equations, for the run as it is; 1 where it was not simulated. Suggestions scaled so
// are beside the prediction on equal terms, also where the cluster was measured and its rates tell less.
double time_scale(const spec::RunFile& run, int ranks, const Cluster& cluster, const Prediction& prediction);

// Cheapest first, in device-seconds a step: the cheapest of all, of those that change one thing less, .. and of those
// that this version can train. Empty if nothing tried fits. Tried: what techniques have as alternatives (ZeRO stages,
// recompute, smaller micro-batches, 16-bit precision, states on the host, tensor parallel within a host, pipelines),
// and their combinations.
std::vector<Suggestion> suggest_changes(const spec::RunFile& run, int ranks, const Cluster& cluster,
                                        const Search& search);

}  // namespace herd::planner
