// ZeRO-2 over one axis of n ranks, after ZeRO-1: gradients in shards too.
//   Bytes per rank: weights + (gradients + states)/n + a pool of whole gradients of a few blocks.
//   Sent: (m+1)(n-1)/n * psi elements with m micro-batches, since what is cut can't wait for the last one.
//   A group's gradient is reduced into its owner's shard right after the last op of a micro-batch that adds to it; the
//   whole is over then, and its buffer serves the next block. Later micro-batches add to the shard: the owner's part of
//   the whole gets what the shard holds before it is reduced. No buckets: blocks are large, and waiting for a bucket to
//   fill would hold memory.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.2.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Zero2 final : public Strategy {
 public:
  explicit Zero2(int axis) : axis_(axis) {}  // REQUIRES what Zero1 wrote
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
};

Technique zero2_row();

}  // namespace herd::strategies
