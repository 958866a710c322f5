// Sums the gradients of parameter groups of which the ranks of an axis hold copies, while each rank computes only a
// part of the gradient. Gradients are summed over the axis once a step, after every other sum. Weights and states stay
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

// The rows of such groups in the table of techniques.h:
Technique tied_groups_row();               // groups of several stages of a pipeline: a tied embedding
Technique sequence_parallel_groups_row();  // groups that work on shards of token rows: norms, with sequence parallel
Technique copied_groups_row();             // keys and values with fewer heads than tensor-parallel ranks

}  // namespace herd::strategies
