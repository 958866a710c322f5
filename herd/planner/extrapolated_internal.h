// Predicts a step of many micro-batches from two programs of few: once a pipeline is full, a step goes on as it began.
// Threads: pure.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "herd/planner/prediction.h"

namespace herd::planner {

// Holds a run with fewer micro-batches, and the same with some more. The step of the run is `steps` times their
// distance beyond the second one.
struct ShorterRuns {
  spec::RunFile first, second;
  double steps = 0;
  // Extrapolates memory. It never falls as micro-batches are added, except where an order has uneven groups of them.
  double bytes_at(double of_first, double of_second) const {
    return of_second + steps * (of_second - std::min(of_first, of_second));
  }
};
// Returns them with 2 + 2 pp and 2 + 3 pp micro-batches. Returns nothing where the run has no more than these, or they
// have no program.
std::optional<ShorterRuns> shorter_runs(const spec::RunFile& run, const spec::Layout& layout);

// Returns the point on the line through the predictions of shorter_runs(); nothing where there are none.
std::optional<Prediction> extrapolate(const spec::RunFile& run, int ranks, const Cluster& cluster);

// Predicts as predict() does, with these stages of layers (PipelineForm); empty = those that with_stage_cut() chooses.
Prediction predict_stages(const spec::RunFile& run, int ranks, const Cluster& cluster,
                          const std::vector<int>& stage_of_layers);

}  // namespace herd::planner
