// Finds changes of the run file that make a run fit its budget, each with what it is predicted to cost.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/planner/prediction.h"
#include "herd/planner/search_limit.h"

namespace herd::planner {

struct Budget {
  int64_t device = 0, host = 0;  // bytes per rank; 0 = no limit
  bool holds(const Prediction& prediction) const;
};

struct Suggestion {
  std::vector<std::string> changes;  // as herd plan and herd train take them: "strategy.zero=3"
  int ranks = 1;
  Prediction prediction;    // by equations
  std::string unsupported;  // what this version can't run; empty = herd train takes it
};

struct Search {
  Budget budget;
  double time_scale = 1;  // factor on the equations' times, as time_scale() returns
  bool skip_automatic_keys =
      false;                     // omit suggestions that change only keys that "auto" would set (variants_that_fit.h)
  bool more_ranks = false;       // also try twice, four times, .. as many ranks, until something fits
  SearchLimit* limit = nullptr;  // borrowed; null = no limit
};

// Returns the simulated time over that of the equations, for the run as it is; 1 where it was not simulated.
// Times of suggestions that are multiplied by it compare with the prediction.
double time_scale(const spec::RunFile& run, int ranks, const Cluster& cluster, const Prediction& prediction);

// Returns changes that fit, cheapest first, in device-seconds a step; empty if nothing fits. It tries the alternatives
// of techniques (ZeRO stages, recompute, smaller micro-batches, 16-bit precision, states on the host, tensor parallel
// within a host, pipelines), and their combinations. For each number of changes it keeps the cheapest, unless fewer
// changes cost no more. It also keeps the cheapest that this version can train.
std::vector<Suggestion> suggest_changes(const spec::RunFile& run, int ranks, const Cluster& cluster,
                                        const Search& search);

}  // namespace herd::planner
