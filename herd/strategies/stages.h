// Defines which blocks and parameter groups the ranks along a pipeline's axis hold. Threads: pure.
#pragma once

#include <set>
#include <vector>

#include "herd/spec/pipeline_form.h"

namespace herd::strategies {

struct Stages {
  std::vector<int> rank_of_block;  // by block: the rank that holds it
  // By rank: the parameter groups that it holds and no earlier rank holds. So each group counts once in a norm.
  std::vector<std::set<int>> first_held_groups;
  std::vector<int> shared_groups;  // groups that several ranks hold, ascending
};

// Cuts the model for `ranks` along the pipeline axis.
Stages stages_of(const spec::ModelTable& model, int ranks, const spec::PipelineForm& form = {});

}  // namespace herd::strategies
