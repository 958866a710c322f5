// Activation checkpointing: forward keeps the input of every K-th transformer block and no graph. Backward computes the
// K blocks of a segment again before it differentiates them, last block first.
//   Memory of L blocks is L/K inputs and K graphs, in place of L graphs. Time grows by one forward.
//   Before the backward of a segment's last block, its other blocks run forward again, with graphs. The last runs as
//   kRecompute, which writes its graph and no output. A block whose graph holds nothing runs again only where a later
//   one needs its output. Random numbers are keyed by their use, so dropout is the same both times. What a router
//   chooses is kept (kRouting), so that tokens go to the same experts, and nothing is counted again. The embedding,
//   whose graph is the token ids, and the loss block do not change.
// Source: Chen et al. 2016, arXiv:1604.06174, section 4.   Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Recompute final : public Strategy {
 public:
  // `every` is K, in layers. `layers` gives the layer of each block. The first entry (embedding) and the last (head) do
  // not change. `stages` gives the stage of each block in a pipeline, whose stages have segments of their own; empty =
  // one stage. `scratch_without_graph` gives the scratch of forwards without a graph by block, where it is another than
  // that of forwards with one. `routing_bytes` gives the bytes of what the router of a block chooses, for blocks that
  // have one. Throws kBadConfig if every < 1.
  Recompute(int every, std::vector<int> layers, std::vector<int> stages = {},
            std::map<int, int64_t> scratch_without_graph = {}, std::map<int, int64_t> routing_bytes = {});
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  void set_scratch(program::Program& step, const program::Op& forward) const;  // of its passes without and with a graph

  int every_;
  std::vector<int> layers_, stages_;
  std::map<int, int64_t> scratch_without_graph_, routing_bytes_;
};

// Returns K of strategy.recompute: 1 for "full", round(sqrt(L)) for "sqrt", K for "every:K", 0 for "none" and
// "selective". L counts the layers between the first and the last. For "selective" the model table leaves attention's
// T x T matrices out of the graph.
int recompute_interval(const std::string& recompute, int layers);

Technique recompute_row();

}  // namespace herd::strategies
