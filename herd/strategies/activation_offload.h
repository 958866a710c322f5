// Inputs of recomputed blocks wait for backward in the host's memory, or in files.
//   Recompute keeps the input of each segment of blocks from its forward to its backward, so L/K of them at the peak.
//   Each is evicted (lane copy-out) once the last forward has read it, and fetched (lane copy-in) before its block runs
//   again. With files, the lane io writes and reads it beside that, through staging buffers on the host.
//   The device holds those of a few passes alone: they share a pool of slots (slots.h), so a forward waits for the
//   eviction of what its slot holds, and a fetch for the block that has used the slot before. A fetch stands one pass
//   ahead of its use in the program, and runs ahead as far as slots are free. An input that is read again after a
//   single pass stays.
//   A rank copies each input out once and in once. Those that a graph refers to anyway stay, too.
//   It follows the rewrites that move activations between ranks, so what waits may be a shard.
// Source: Rajbhandari et al. 2021, arXiv:2104.07857, section 5.1.2.   Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class ActivationOffload final : public Strategy {
 public:
  // `layers` has the layer of each block; `tier` is where inputs wait: kHost or kNvme.
  ActivationOffload(std::vector<int> layers, program::Tier tier) : layers_(std::move(layers)), tier_(tier) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  std::vector<int> layers_;
  program::Tier tier_;
};

Technique activation_offload_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
