#include "herd/strategies/stages.h"

#include <algorithm>
#include <map>
#include <optional>

#include "herd/base/error.h"

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

namespace {

// Holds a group of which two blocks lie on ranks that no axis joins.
struct SharedGroup {
  int group = 0;
  size_t first_block = 0, second_block = 0;
};

std::optional<SharedGroup> unjoined_group(const spec::ModelTable& model, int ranks, const spec::PipelineForm& form,
                                          bool ends_joined) {
  const std::vector<int> rank_of_block = spec::rank_of_blocks(model, ranks, form);
  std::map<int, size_t> first_reader;  // by group
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const int group : model.blocks[b].groups) {
      const size_t first = first_reader.try_emplace(group, b).first->second;
      const auto [low, high] = std::minmax(rank_of_block[first], rank_of_block[b]);
      const bool joined = low == high || (ends_joined && low == 0 && high == ranks - 1);
      if (!joined) return SharedGroup{group, first, b};
    }
  }
  return std::nullopt;
}

}  // namespace

void require_joined_groups(const spec::ModelTable& model, const spec::Layout& layout) {
  if (layout.pp == 1) return;
  const auto shared = unjoined_group(model, layout.pp, layout.pipeline, layout.tied_axis != kNoAxis);
  if (!shared) return;
  const std::vector<int> stages = spec::stage_of_blocks(model, layout.pp, layout.pipeline);
  const auto block_text = [&](size_t block) {
    return "block \"" + model.blocks[block].name + "\" of stage " + std::to_string(stages[block]);
  };
  int fix = layout.pp - 1;  // one rank joins all
  while (fix > 1 && unjoined_group(model, fix, layout.pipeline, layout.tied_axis != kNoAxis)) --fix;
  throw Error(Code::kBadConfig,
              "parameter group \"" + model.groups[static_cast<size_t>(shared->group)].name + "\" is read by " +
                  block_text(shared->first_block) + " and " + block_text(shared->second_block) +
                  ": on different ranks of a pipeline only blocks of the first and the last rank may share a group, " +
                  "got mesh.pp = " + std::to_string(layout.pp) + "\n  fix: mesh.pp = " + std::to_string(fix));
}

}  // namespace herd::strategies
