// Defines which blocks and parameter groups the ranks along a pipeline's axis hold. Threads: pure.
#pragma once

#include <set>
#include <vector>

#include "herd/spec/layout.h"

namespace herd::strategies {

struct Stages {
  std::vector<int> rank_of_block;  // by block: the rank that holds it
  // By rank: the parameter groups that it holds and no earlier rank holds. So each group counts once in a norm.
  std::vector<std::set<int>> first_held_groups;
  std::vector<int> shared_groups;  // groups that several ranks hold, ascending
};

// Cuts the model for `ranks` along the pipeline axis.
Stages stages_of(const spec::ModelTable& model, int ranks, const spec::PipelineForm& form = {});

// Throws kBadConfig where blocks on different ranks of the pipeline read one parameter group, unless these are the
// first and the last rank, and layout.tied_axis joins them.
void require_joined_groups(const spec::ModelTable& model, const spec::Layout& layout);

}  // namespace herd::strategies
