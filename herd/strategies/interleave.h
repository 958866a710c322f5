// Lets micro-batches take turns, so that the collectives inside the layers of one run while another computes. It has
// nothing to do with interleaved pipeline stages.
//   Each of `count` micro-batches runs until it has issued a collective of activations. Then the micro-batch
//   whose collective ends first runs, by estimated times: 2 units for attention, a block that ranks share or experts, 1
//   for a collective, 0 for any other op. All ranks have the same sequence. Memory holds the activations of `count`
//   micro-batches. With all-reduces, two micro-batches hide all collectives but the first and the last. With sequence
//   parallel a gather follows a reduce-scatter with next to nothing to compute between: two micro-batches hide half of
//   the gathers and of the reduce-scatters, three nearly all. Where ranks share experts, rows of one micro-batch go to
//   them, and outputs come back, while another computes.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 3.2, for the collectives; herd's own for the sequence.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Interleave final : public Strategy {
 public:
  // REQUIRES a step of all micro-batches, one after the other, whose layers, or their experts, are shared among ranks.
  Interleave(int count, const spec::ModelTable& model);
  std::string name() const override { return "interleave " + std::to_string(count_) + " micro-batches"; }
  program::Program rewrite(program::Program step) const override;

 private:
  int count_;
  std::vector<bool> shared_;  // by block
};

Technique interleave_row();  // applies where strategy.interleave_micro_batches > 1

}  // namespace herd::strategies
