// Sums the gradients of parameter groups that ranks of an axis hold alike, while each has the contributions of its own
// work. Such groups are those of several stages of a pipeline (a tied embedding), and those that work on shards of rows
// (norms, with sequence parallel). Keys and values are such groups, too, where they have fewer heads than there are
// tensor-parallel ranks. Gradients are summed over the axis once a step, after every other sum. Weights and states stay
// alike, since all of these ranks make the same update.
//   Each of them sends 2(n-1)/n of the group's gradient for n ranks, or of its shard.
// Source: Narayanan et al. 2021, arXiv:2104.04473 (embedding groups of Megatron-LM).
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class SharedGroups final : public Strategy {
 public:
  // `axis` joins the ranks that hold `groups`, which are ascending. Programs of other ranks do not change.
  SharedGroups(int axis, std::vector<int> groups) : axis_(axis), groups_(std::move(groups)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<int> groups_;
};

Technique tied_groups_row();
Technique groups_of_sequence_row();
Technique copied_groups_row();

}  // namespace herd::strategies
