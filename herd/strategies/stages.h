// Defines what the ranks along a pipeline's axis hold.   Threads: pure.
#pragma once

#include <set>
#include <vector>

#include "herd/spec/pipeline_form.h"

namespace herd::strategies {

struct Stages {
  std::vector<int> of_blocks;          // the rank of each block
  std::vector<std::set<int>> counted;  // parameter groups of each rank, without those that an earlier rank holds, too
  std::vector<int> shared;             // groups that several ranks hold, ascending
};

Stages stages_of(const spec::ModelTable& model, int ranks, const spec::PipelineForm& form = {});

}  // namespace herd::strategies
