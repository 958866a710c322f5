// Takes all micro-batches through a layer before the next: forward in the order of layers, backward in reverse. It is
// the order of a pipeline that runs all forwards, then all backwards, with a stage for each layer, on one rank.
//   Weights that are fetched or gathered come once for the passes of all M micro-batches (each_pass.h), so a step moves
//   1/M of what it moves where each micro-batch runs by itself. Memory holds the activations of all M micro-batches. A
//   layer that recompute runs again does so right before its own backward, for one micro-batch after the other; the
//   layers of a longer segment are run again for all micro-batches, one layer after the other.
//   Each gradient is summed in the order of micro-batches, so results have the bits of the other order. Gradients of a
//   group that several layers read, such as a tied embedding, are summed layer by layer.
// Source: Huang et al. 2019, arXiv:1811.06965, section 2, for the order.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class LayerMajor final : public Strategy {
 public:
  // `layers` has the layer of each block. REQUIRES a step of all micro-batches, one after the other.
  explicit LayerMajor(std::vector<int> layers) : layers_(std::move(layers)) {}
  std::string name() const override { return "layer_major"; }
  program::Program rewrite(program::Program step) const override;

 private:
  const std::vector<int> layers_;
};

Technique layer_major_row();  // applies where strategy.order = "layer_major"

}  // namespace herd::strategies
