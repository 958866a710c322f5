// Defines how the stages of a run's pipeline lie on its ranks. Threads: any; it may read the file of an order.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

struct PipelineForm {
  int stages_per_rank = 1;
  bool folded = false;  // true: rank r of p has stages r and 2p-1-r; false: stages r, r + p, ..
  // The stage of each layer (layer_of_blocks() in stage_cut.h), where planner/stage_search.h has chosen them; empty =
  // as stage_cut.h cuts a model where memory does not count.
  std::vector<int> stage_of_layers = {};
  bool operator==(const PipelineForm&) const = default;
};

// Throws kBadConfig where strategy.stages_per_rank does not fit strategy.pipeline, or the file that it names holds no
// order.
PipelineForm pipeline_form(const RunFile& run);

// Returns PATH where strategy.pipeline is "file:PATH"; else empty.
std::string order_file_of(const RunFile& run);

// Returns the rank, of `ranks`, that has each stage.
std::vector<int> rank_of_stages(int ranks, const PipelineForm& form);

// Returns the stage of each block in a pipeline of `ranks`. Throws as stage_of_blocks() of stage_cut.h.
std::vector<int> stage_of_blocks(const ModelTable& model, int ranks, const PipelineForm& form);

// Returns the rank along the pipeline's axis, of `ranks` there, that runs each block. Throws as stage_of_blocks().
std::vector<int> rank_of_blocks(const ModelTable& model, int ranks, const PipelineForm& form);

}  // namespace herd::spec
