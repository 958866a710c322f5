// Says how a run's pipeline is cut, for herd plan --stages. Threads: any; it may read the order file that
// strategy.pipeline names.
#pragma once

#include <string>

#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"

namespace herd::planner {

// Lists the blocks, parameters and arithmetic of each rank's stages, the bytes that each sends on, and the order over
// time; one sentence where the run has no pipeline. `model` is of one micro-batch; without it, it is what the run
// file's [model] makes.
std::string stages_text(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout);
std::string stages_text(const spec::RunFile& run, const spec::Layout& layout);

// Says that the order splits backward where a chain's own blocks run it whole; empty elsewhere.
std::string whole_backward_remark(const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::planner
