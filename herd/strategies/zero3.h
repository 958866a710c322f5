// ZeRO-3 over one axis of n ranks, after ZeRO-2: weights in shards too, gathered for each pass over a block.
//   Bytes per rank: (weights + gradients + states)/n + pools of whole weights and gradients of a few blocks.
//   Sent: 3(n-1)/n * psi elements with one micro-batch: gathers for forward and backward, and the reduce-scatter; less
//   where a block needs one pass (the loss block) or no weights to differentiate (an embedding), and one gather more of
//   a block that recompute runs forward with its segment. A gather stands before each pass; passes over one block that
//   follow each other (recompute, backward) share it. How far gathers run ahead is decided by the number of buffers
//   (slots.h).
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.3 and 7.2.2.
#pragma once

#include "herd/strategies/strategy.h"

namespace herd::strategies {

class Zero3 final : public Strategy {
 public:
  explicit Zero3(std::string axis) : axis_(std::move(axis)) {}  // REQUIRES what Zero1 wrote
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  std::string axis_;
};

}  // namespace herd::strategies
