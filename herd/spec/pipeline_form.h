// Defines how the stages of a run's pipeline lie on its ranks.   Threads: any (an order in a file is read).
#pragma once

#include <string>
#include <vector>

#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

struct PipelineForm {
  int stages_per_rank = 1;
  bool folded = false;  // spec/pipeline_order.h says which rank has which stage
  bool operator==(const PipelineForm&) const = default;
};

// Throws kBadConfig where strategy.stages_per_rank is not what strategy.pipeline has, or its file is none.
PipelineForm pipeline_form(const RunFile& run);

// "file:PATH" -> PATH, the order of a file; else empty.
std::string order_file_of(const RunFile& run);

// The stage of each block, of a pipeline of `ranks`.   Throws as stage_of_blocks() of stage_cut.h.
std::vector<int> stage_of_blocks(const ModelTable& model, int ranks, const PipelineForm& form);

// Which rank along the pipeline's axis runs each block, of `ranks` there.   Throws as stage_of_blocks().
std::vector<int> rank_of_blocks(const ModelTable& model, int ranks, const PipelineForm& form);

}  // namespace herd::spec
