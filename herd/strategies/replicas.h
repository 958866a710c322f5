// Hybrid sharding, after ZeRO over another axis: d copies of the shards, each with samples of its own.
//   A shard's gradient is summed over its copies once a step, after the last reduce-scatter that adds to it; so between
//   hosts, where copies stand, psi/f elements of f shards are reduced, 2(d-1)/d * psi/f sent.
// Source: Zhao et al. 2023, arXiv:2304.11277, section 3.2.2.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Replicas final : public Strategy {
 public:
  explicit Replicas(int axis) : axis_(axis) {}  // of the copies
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
};

// Whether ranks hold copies of shards: gradients are summed over the shards first, then over the copies.
bool has_replicas(const spec::RunFile& run, const spec::Layout& layout);

Technique replicas_row();

}  // namespace herd::strategies
