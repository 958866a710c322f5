// Micro-batches that take turns, so that the collectives inside the layers of one are on their way while another
// computes.
//   Of `count` micro-batches each runs until it has issued a collective of activations; then the one that can go on
//   first runs, as if a block that ranks share took two units, all others nothing, and a collective one. All ranks have
//   the same sequence. Memory: the activations of `count` micro-batches. With all-reduces two micro-batches hide all
//   but the first and the last of them. With sequence parallel a gather follows a reduce-scatter with next to nothing
//   to compute between: two hide half of both, three nearly all.
// Sources: Narayanan et al. 2021, arXiv:2104.04473, section 3.2 (the collectives); the sequence is of herd's own.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Interleave final : public Strategy {
 public:
  // REQUIRES a step of all micro-batches, one after the other, whose layers are shared among ranks.
  Interleave(int count, const spec::ModelTable& model);
  std::string name() const override { return "interleave " + std::to_string(count_) + " micro-batches"; }
  program::Program rewrite(program::Program step) const override;

 private:
  int count_;
  std::vector<bool> shared_;  // by block
};

Technique interleave_row();

}  // namespace herd::strategies
