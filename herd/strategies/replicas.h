// Hybrid sharding, after ZeRO over another axis: d copies of the shards, each with samples or tokens of its own. A
// shard's gradient is summed over its copies once a step, after the last reduce-scatter that adds to it. With f shards
// of psi parameters, each rank sends 2(d-1)/d * psi/f elements to the copies, which are usually on other hosts. Source:
// Zhao et al. 2023, arXiv:2304.11277, section 3.2.2.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Replicas final : public Strategy {
 public:
  // Takes the axis that cuts gradients into shards, and the one along which the copies of a shard lie.
  Replicas(int shards, int copies) : shards_(shards), copies_(copies) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int shards_, copies_;
};

// Tells whether ranks hold copies of shards, so that gradients are summed over the shards first, then over the copies.
bool has_replicas(const spec::RunFile& run, const spec::Layout& layout);

// Returns the axis along which gradients are all-reduced: that of all data and context ranks without ZeRO, that of the
// copies of shards with it. Returns kNoAxis where all ranks work on the same samples, or reduce-scatters alone sum the
// gradients.
int all_reduced_axis(const spec::RunFile& run, const spec::Layout& layout);

Technique replicas_row();

}  // namespace herd::strategies
