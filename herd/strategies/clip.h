// The global gradient norm, and the factor that clips it: a barrier between the last reduce and the first step.
//   norm<g> = sum of squares of group g's gradient;  factor = min(1, limit / sqrt(sum of all norms)).
//   The factor is a buffer that every step op reads, so that nothing branches. Where gradients are whole on every rank,
//   each computes all norms and no rank hears from another: all sum in the same order, so all get the same bits.
//   Where steps read shards, the norms of all groups are those of shards, and are summed over the axis that cuts them,
//   8 bytes a group in one message. In a pipeline a rank has the groups of its stage: it adds their norms up, norm0,
//   and that is summed over the stages, where a group that several stages hold counts on the first of them.
// Source: Pascanu et al. 2013, arXiv:1211.5063, section 3.2.
#pragma once

#include <set>

#include "herd/strategies/strategy.h"

namespace herd::strategies {

class Clip final : public Strategy {
 public:
  // Axes are kNoAxis where gradients are whole, and where every rank has all groups.
  explicit Clip(int shard_axis = kNoAxis, int stage_axis = kNoAxis, std::vector<std::set<int>> counted = {})
      : shard_axis_(shard_axis), stage_axis_(stage_axis), counted_(std::move(counted)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int shard_axis_, stage_axis_;
  std::vector<std::set<int>> counted_;  // by stage: the groups whose norms it counts
};

}  // namespace herd::strategies
