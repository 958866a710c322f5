// What the stages of a pipeline hold.   Threads: pure.
#pragma once

#include <set>
#include <vector>

#include "herd/spec/model_table.h"

namespace herd::strategies {

struct Stages {
  std::vector<int> of_blocks;          // the stage of each block (spec/stage_cut.h)
  std::vector<std::set<int>> counted;  // by stage: its parameter groups, but for those that an earlier stage holds, too
  std::vector<int> shared;             // groups that several stages hold, ascending
};

Stages stages_of(const spec::ModelTable& model, int stages);

}  // namespace herd::strategies
