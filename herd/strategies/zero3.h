// ZeRO-3: cuts weights, too, into shards over one axis of n ranks, and gathers them for each pass over a block. It runs
// after ZeRO-1 and ZeRO-2. The model has psi parameters.
//   Bytes per rank: (weights + gradients + states)/n + pools of whole weights and gradients of a few blocks, and
//   (n-1)/n of the weights of each group that is kept whole.
//   A rank sends 3(n-1)/n * psi elements with one micro-batch: gathers for forward and backward, and the
//   reduce-scatter. It sends less where a block needs one pass (the loss block), or its backward reads no weights (an
//   embedding). It sends one gather more where recompute runs a block forward. A gather stands before each pass; passes
//   over one block that follow each other (recompute, backward) share it. The number of buffers decides how far gathers
//   run ahead (slots.h). Groups that are kept whole stay as ZeRO-2 has them: gathered once a step, after their update.
//   So they send 2(n-1)/n in place of (1 + passes)(n-1)/n elements each. Releasing them between steps would not lower
//   the peak, which is at the loss, between forward and backward.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.3 and 7.2.2.   Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "herd/strategies/technique.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

class Zero3 final : public Strategy {
 public:
  // REQUIRES a program that Zero1, or Zero1 and then Zero2, has rewritten over the same axes. kept_whole() picks
  // `num_kept_whole` groups that are kept whole. `layers` gives the layer of each block; blocks of one layer share
  // gathers. Empty = each block is a layer.
  explicit Zero3(ShardAxes axes, int64_t num_kept_whole = 0, std::vector<int> layers = {})
      : axes_(std::move(axes)), num_kept_whole_(num_kept_whole), layers_(std::move(layers)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  ShardAxes axes_;
  int64_t num_kept_whole_;
  std::vector<int> layers_;
};

// Picks at most `count` groups that are best kept whole. `gathers` tells by group how often a step gathers it. The
// groups gathered most often are picked, since each gather moves the same share of a group's bytes. Among equals the
// first are picked, since a forward begins with them.
std::set<int> kept_whole(const std::map<int, int>& gathers, int64_t count);

// Returns how many groups are kept whole at most: strategy.keep_whole. "auto" counts as 0; planner/variants_that_fit.h
// resolves it before.
int64_t groups_kept_whole(const spec::RunFile& run);

Technique zero3_row();

}  // namespace herd::strategies
