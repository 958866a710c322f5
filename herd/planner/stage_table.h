// Says how a run's pipeline is cut, for herd plan --stages. Threads: any; it may read the order file that
// strategy.pipeline names.
#pragma once

#include <string>

#include "herd/planner/cluster.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"

namespace herd::planner {

// Lists each rank's stages: their blocks, parameters, arithmetic and time, what the rank holds in memory at its fullest
// moment, and the bytes that each stage sends on. Then it says which stage takes longest and which rank holds most, and
// draws the order over time. What a step that is too long to build holds is extrapolated from two shorter ones. It is
// one sentence where the run has no pipeline. `layout` has the stages that with_stage_cut() has chosen, as in a
// Prediction. `model` is of one micro-batch; without it, it is what the run file's [model] makes.
std::string stages_text(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout,
                        const Cluster& cluster);
std::string stages_text(const spec::RunFile& run, const spec::Layout& layout, const Cluster& cluster);

// Says that the order splits backward where a chain's own blocks run it whole; empty elsewhere.
std::string whole_backward_remark(const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::planner
