// ZeRO-2 over one axis of n ranks. In addition to ZeRO-1, it cuts gradients into shards. psi = parameters of a rank.
//   Bytes per rank: weights + (gradients + states)/n + a pool of whole gradients of a few blocks.
//   A rank sends (m+1)(n-1)/n * psi elements with m micro-batches: a reduce-scatter for each, and the gather of
//   weights. A whole gradient never outlives its micro-batch, so each one's is reduced, not only the last one's.
//   A group's gradient is reduced into its owner's shard right after the last op of a micro-batch that adds to it; then
//   its buffer serves the next block. Later micro-batches add to the shard: before a reduce, the owner adds its shard
//   to its part of the whole gradient. There are no buckets: blocks are large, and a bucket that waits would hold
//   memory.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.2.
#pragma once

#include "herd/strategies/technique.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

class Zero2 final : public Strategy {
 public:
  // REQUIRES a program that Zero1 has rewritten over the same axes.
  explicit Zero2(ShardAxes axes) : axes_(std::move(axes)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  bool is_whole_gradient(const program::Value& value) const;  // tells whether it is one of a group that is cut

  ShardAxes axes_;
};

Technique zero2_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
