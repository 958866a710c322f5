// Sums the gradients of parameter groups of which the ranks of an axis hold copies, while each rank computes only a
// part of the gradient. Gradients are summed over the axis once a step, after every other sum. Weights and states stay
// alike, since all of these ranks make the same update.
//   Each of them sends 2(n-1)/n of the group's gradient for n ranks, or of its shard.
// Source: Narayanan et al. 2021, arXiv:2104.04473 (embedding groups of Megatron-LM).
#pragma once

#include <map>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class SharedGroups final : public Strategy {
 public:
  // An axis joins the ranks that hold a group. Programs of other ranks do not change.
  SharedGroups(int axis, const std::vector<int>& groups) {
    for (const int group : groups) axis_of_group_[group] = axis;
  }
  explicit SharedGroups(std::map<int, int> axis_of_group) : axis_of_group_(std::move(axis_of_group)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  std::map<int, int> axis_of_group_;
};

// Returns the axis of the ranks that hold a tied embedding each, those of the first and the last stage; kNoAxis where
// no two stages hold it.
int axis_of_tied_groups(const spec::Layout& layout);

// The rows of such groups in the table of techniques.h:
Technique tied_groups_row();               // groups of several stages of a pipeline: a tied embedding
Technique sequence_parallel_groups_row();  // groups that work on shards of token rows: norms, with sequence parallel
Technique copied_groups_row();  // keys and values with fewer heads than tensor-parallel ranks, and norms of heads

}  // namespace herd::strategies
