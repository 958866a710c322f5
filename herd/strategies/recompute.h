// Activation checkpointing: forward keeps the input of every K-th transformer block and no graph; backward computes the
// K blocks of a segment again before it differentiates them, last block first.
//   Memory of L blocks: L/K inputs + K graphs, where keeping all is L graphs.   Time: one forward more.
//   Before the backward of a segment's last block: forward of its other blocks, now with graphs, and recompute of the
//   last. A block whose graph holds nothing runs again only where a later one needs what it gives. Random numbers are
//   keyed by what they are for, so dropout is the same both times. The embedding (its graph is the token ids) and the
//   loss block are left as they are.
// Source: Chen et al. 2016, arXiv:1604.06174, section 4.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Recompute final : public Strategy {
 public:
  // K layers; throws kBadConfig if every < 1. `layers`: of each block, the first and the last of them left as they are.
  // `stages`: of each block in a pipeline, whose stages have segments of their own; empty = there is one.
  Recompute(int every, std::vector<int> layers, std::vector<int> stages = {});
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int every_;
  std::vector<int> layers_, stages_;
};

// K of strategy.recompute: "full" 1, "sqrt" round(sqrt(L)), "every:K"; 0 for "none" and for "selective", which the
// layer table knows: it leaves attention's T x T matrices out of the graph.
int recompute_interval(const std::string& recompute, int transformer_blocks);

Technique recompute_row();

}  // namespace herd::strategies
