// The global gradient norm, and the factor that clips it: a barrier between the last reduce and the first step.
//   norm<g> = sum of squares of group g's gradient;  factor = min(1, limit / sqrt(sum of all norms)).
//   The factor is a buffer that every step op reads, so that nothing branches. Where gradients are whole on every rank,
//   each computes all norms and no rank hears from another: all sum in the same order, so all get the same bits.
//   Where steps read shards, the norms of all groups are those of shards, and are summed over the axis that cuts them,
//   8 bytes a group in one message.
// Source: Pascanu et al. 2013, arXiv:1211.5063, section 3.2.
#pragma once

#include "herd/strategies/strategy.h"

namespace herd::strategies {

class Clip final : public Strategy {
 public:
  explicit Clip(int shard_axis = kNoAxis) : shard_axis_(shard_axis) {}  // kNoAxis: gradients are whole
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int shard_axis_;
};

}  // namespace herd::strategies
