// ZeRO-Offload: optimizer states live in the host's memory, and the update runs there.
//   Bytes of a parameter on the device: its weight and gradient. On the host: the fp32 weight and the moments, 12 with
//   AdamW; and staging for two groups at a time.
//   After clipping, group by group in the order of the blocks: evict g (lane copy-out) | step on the host (lane host) |
//   fetch w (lane copy-in). The three lanes work on neighbouring groups at once, since staging has two buffers; and the
//   next step's forward waits for the weights of its own block alone, so that later updates run beside it.
//   Copied each step: a gradient out and a weight in, of what the rank updates: all of it, or its shard.
//   With fp32 the host keeps the weights that it steps and the device has a copy; 16-bit weights are made anew from the
//   master copy among the states.
// Source: Ren et al. 2021, arXiv:2101.06840, section 4.
#pragma once

#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class HostStates final : public Strategy {
 public:
  // `keeps_weights`: the host's weights stay from step to step; else they are made of the states each time.
  explicit HostStates(bool keeps_weights) : keeps_weights_(keeps_weights) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  bool keeps_weights_;
};

Technique host_states_row();

}  // namespace herd::strategies
