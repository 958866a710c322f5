#include "herd/strategies/stages.h"

#include <map>

#include "herd/spec/stage_cut.h"

namespace herd::strategies {

Stages stages_of(const spec::ModelTable& model, int stages) {
  Stages out{spec::stage_of_blocks(model, stages), std::vector<std::set<int>>(static_cast<size_t>(stages)), {}};
  std::map<int, int> first;  // stage that holds a group
  std::set<int> shared;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const int group : model.blocks[b].groups) {
      const int stage = out.of_blocks[b], holder = first.try_emplace(group, stage).first->second;
      out.counted[static_cast<size_t>(holder)].insert(group);
      if (holder != stage) shared.insert(group);
    }
  }
  out.shared.assign(shared.begin(), shared.end());
  return out;
}

}  // namespace herd::strategies
