// ZeRO-3 over one axis of n ranks, after ZeRO-2, cuts weights into shards, too, and gathers them for each pass over a
// block.
//   Bytes per rank: (weights + gradients + states)/n + pools of whole weights and gradients of a few blocks, and
//   (n-1)/n of the weights of each group that is kept whole.
//   A rank sends 3(n-1)/n * psi elements with one micro-batch: gathers for forward and backward, and the
//   reduce-scatter. It sends less where a block needs one pass (the loss block) or no weights to differentiate (an
//   embedding), and one gather more where recompute runs a block forward. A gather stands before each pass; passes over
//   one block that follow each other (recompute, backward) share it. The number of buffers decides how far gathers run
//   ahead (slots.h). Groups that are kept whole stay as ZeRO-2 has them: gathered once a step, after their update. So
//   they send 2(n-1)/n in place of (1 + passes)(n-1)/n elements each. Holding them from forward to backward alone would
//   take as much memory, since memory is highest at the loss.
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
  // REQUIRES what Zero1 wrote. kept_whole() picks `whole` groups that are kept whole. `layers` gives the layer of each
  // block; blocks of one layer share gathers. Empty = each block is a layer.
  explicit Zero3(int axis, int64_t whole = 0, std::vector<int> layers = {})
      : axis_(axis), whole_(whole), layers_(std::move(layers)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  int64_t whole_;
  std::vector<int> layers_;
};

// Picks at most `count` groups that are best kept whole, by the gathers of a step. These are the groups that are
// gathered most often for each byte, and of equals the first, since a forward begins with them.
std::set<int> kept_whole(const std::map<int, int>& gathers, int64_t count);

// Returns how many groups are kept whole at most: strategy.keep_whole. "auto" counts as 0; planner/rewrites.h resolves
// it before.
int64_t groups_kept_whole(const spec::RunFile& run);

Technique zero3_row();

}  // namespace herd::strategies
