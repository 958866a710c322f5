// Predicts a step of many micro-batches from two programs of few: once a pipeline is full, a step goes on as it began.
// Threads: pure.
#pragma once

#include <optional>

#include "herd/planner/prediction.h"

namespace herd::planner {

// Returns the point on the line through the predictions of 2 + 2 pp and 2 + 3 pp micro-batches. Returns nothing where
// the run has no more than these, or they have no program.
std::optional<Prediction> extrapolate(const spec::RunFile& run, int ranks, const Cluster& cluster);

}  // namespace herd::planner
