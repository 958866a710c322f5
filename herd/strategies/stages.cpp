#include "herd/strategies/stages.h"

#include <map>

namespace herd::strategies {

Stages stages_of(const spec::ModelTable& model, int ranks, const spec::PipelineForm& form) {
  Stages out{spec::rank_of_blocks(model, ranks, form), std::vector<std::set<int>>(static_cast<size_t>(ranks)), {}};
  std::map<int, int> first_holder;  // for each group, the first rank that holds it
  std::set<int> shared;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const int group : model.blocks[b].groups) {
      const int rank = out.rank_of_block[b], first_rank = first_holder.try_emplace(group, rank).first->second;
      out.first_held_groups[static_cast<size_t>(first_rank)].insert(group);
      if (first_rank != rank) shared.insert(group);
    }
  }
  out.shared_groups.assign(shared.begin(), shared.end());
  return out;
}

}  // namespace herd::strategies
