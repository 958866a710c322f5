#include <algorithm>

#include "herd/program/symbols_internal.h"

namespace herd::program {

Model::Model(const Expectation& expected) : expected_(expected) {}

std::set<int> Model::groups_of(int rank) const {
  std::set<int> out;
  for (size_t b = 0; b < expected_.block_groups.size(); ++b) {
    const int stage = expected_.block_stage.empty() ? 0 : expected_.block_stage[b];
    if (stage == expected_.mesh.index(expected_.stage_axis, rank))
      out.insert(expected_.block_groups[b].begin(), expected_.block_groups[b].end());
  }
  return out;
}

std::set<int> Model::trained_groups() const {
  std::set<int> out;
  for (const auto& groups : expected_.block_groups) out.insert(groups.begin(), groups.end());
  for (const int group : expected_.frozen) out.erase(group);
  return out;
}

int Model::version(int group, int steps) const {
  return expected_.trains && !expected_.frozen.contains(group) ? steps : 0;
}

std::set<Atom> Model::contributions(int group, int rank) const {
  const int over = expected_.proof.summed ? expected_.data : expected_.proof.summed_over;
  std::set<Atom> out;
  for (int b = 0; b < num_blocks(); ++b) {
    const auto& groups = expected_.block_groups[static_cast<size_t>(b)];
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) continue;
    for (int m = 0; m < expected_.micro_batches; ++m) {
      for (const int member : expected_.mesh.ranks(over, rank)) out.insert({b, m, data_rank(member)});
    }
  }
  return out;
}

}  // namespace herd::program
