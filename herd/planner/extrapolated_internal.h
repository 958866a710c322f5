// Predicts a step of many micro-batches from two programs of few: once a pipeline is full, a step goes on as it began.
// Threads: pure.
#pragma once

#include <optional>
#include <vector>

#include "herd/planner/prediction.h"

namespace herd::planner {

// Returns the point on the line through the predictions of 2 + 2 pp and 2 + 3 pp micro-batches. Returns nothing where
// the run has no more than these, or they have no program.
std::optional<Prediction> extrapolate(const spec::RunFile& run, int ranks, const Cluster& cluster);

// Predicts as predict() does, with these stages of layers (PipelineForm); empty = those that with_stage_cut() chooses.
Prediction predict_stages(const spec::RunFile& run, int ranks, const Cluster& cluster,
                          const std::vector<int>& stage_of_layers);

}  // namespace herd::planner
