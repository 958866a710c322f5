// Weights that live in the host's memory, of which a window is on the device (STRONGHOLD).
//   Weights are fetched (lane copy-in) before each pass over their block, into one of the buffers of a pool, and are
//   over after it. With a window of m, weights of m passes may be on the device at once, the running one included. So
//   up to m - 1 passes ahead are fetched while others compute. Neighbouring passes over a layer share its fetch.
//   It follows the rewrite of states on the host (host_states.h), whose updates then leave their weights there.
//   A rank fetches a block's weights once in forward, and once for its recompute or backward, for each micro-batch.
//   ZeRO-1 and 2   Whole weights wait on the host, and the shard that a rank updates lies inside them. After its
//                  update ranks gather it there: all_gather(w.shard.host -> w.host). So the device has no shards.
//   ZeRO-3         A rank's shard waits on the host. It is fetched before each gather: fetch(w.shard.host -> w.shard),
//                  all_gather(w.shard -> w), both into buffers of the pool, so that each rank's link carries 1/n of the
//                  weights (ZeRO-Infinity). Groups that are kept whole (strategy.keep_whole) are so on the host.
//   Files         With strategy.offload = "nvme_all" weights pass through the host (values_in_files.h).
// Source: Sun et al. 2022, STRONGHOLD, SC22, section III; Rajbhandari et al. 2021, arXiv:2104.07857, section 6.1.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class WeightWindow final : public Strategy {
 public:
  // `layers` has the layer of each block.
  explicit WeightWindow(std::vector<int> layers) : layers_(std::move(layers)) {}
  std::string name() const override { return "window of weights"; }
  program::Program rewrite(program::Program step) const override;

 private:
  const std::vector<int> layers_;
};

// Tells whether weights wait on the host, or in files from which they pass through it.
bool has_window(const spec::RunFile& run);

// Returns the step with a fetch of weights from the host before each pass, or gather for a pass, that needs one, in
// place of all fetches of weights. `layers` has the layer of each block.
program::Program with_fetches(program::Program step, const std::vector<int>& layers);

Technique weight_window_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
