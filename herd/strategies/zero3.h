// ZeRO-3 over one axis of n ranks, after ZeRO-2: weights in shards too, gathered for each pass over a block.
//   Bytes per rank: (weights + gradients + states)/n + pools of whole weights and gradients of a few blocks; and
//   (n-1)/n of the weights of each group that is kept whole.
//   Sent: 3(n-1)/n * psi elements with one micro-batch: gathers for forward and backward, and the reduce-scatter; less
//   where a block needs one pass (the loss block) or no weights to differentiate (an embedding), and one gather more of
//   a block that recompute runs forward with its segment. A gather stands before each pass; passes over one block that
//   follow each other (recompute, backward) share it. How far gathers run ahead is decided by the number of buffers
//   (slots.h).
//   Groups that are kept whole stay as ZeRO-2 has them: gathered once a step, after their update, and held through all
//   micro-batches, forward and backward, so that they send 2(n-1)/n in place of (1 + passes)(n-1)/n elements each. Held
//   from forward to backward alone they would take the same memory, since that is highest where the loss is.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.3 and 7.2.2.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Zero3 final : public Strategy {
 public:
  // REQUIRES what Zero1 wrote. `whole` groups are kept whole, kept_whole() of them. `layers`: of each block; blocks
  // that are parts of one layer share gathers. Empty = each block is a layer.
  explicit Zero3(int axis, int64_t whole = 0, std::vector<int> layers = {})
      : axis_(axis), whole_(whole), layers_(std::move(layers)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  int64_t whole_;
  std::vector<int> layers_;
};

// Which of the groups `gathers` of a step are counted for are best kept whole, `count` at most: those that are gathered
// most often for each byte, of those the first, since a forward begins with them.
std::set<int> kept_whole(const std::map<int, int>& gathers, int64_t count);

// Groups whose weights are kept whole, at most: strategy.keep_whole. A number that is left to herd counts 0: who knows
// the machines resolves it first (planner/rewrites.h).
int64_t groups_kept_whole(const spec::RunFile& run);

Technique zero3_row();

}  // namespace herd::strategies
