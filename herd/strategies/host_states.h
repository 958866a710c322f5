// ZeRO-Offload and ZeRO-Infinity: optimizer states live in the host's memory, or in files, and the update runs on the
// host.
//   The device holds a parameter's weight and gradient. The host or a file holds the fp32 weight and the moments, 12
//   bytes a parameter with AdamW. Beside them the host has staging buffers, one for each of two groups.
//   Each group is evicted (lane copy-out), stepped (lane host) and fetched (lane copy-in). With two buffers the three
//   lanes work on neighbouring groups at once. The next step's forward waits for the weights of its own block alone, so
//   updates of later blocks overlap with it.
//   Where updates wait for the norm of all gradients, they follow each other in the order of blocks. Elsewhere (clip
//   and check_finite off) a group is updated once its gradient is complete and its weights are not read again in the
//   step, so beside the backward of earlier blocks. From files, the lane io reads the states of a group while the group
//   before is updated, and then writes them back. It reads the first group of a step ahead, during forward. A step
//   copies a gradient out and a weight in for each parameter that the rank updates: all, or those of its shard. Files
//   are read and written once. With fp32 the host, or the file, keeps the weights that it steps, and the device has a
//   copy. 16-bit weights are made anew from the master copy among the states.
// Source: Ren et al. 2021, arXiv:2101.06840, section 4; Rajbhandari et al. 2021, arXiv:2104.07857, section 5.
#pragma once

#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class HostStates final : public Strategy {
 public:
  // `keeps_weights`: weights stay where the states do; else each step makes them from the states. `tier` is where both
  // stay: kHost or kNvme.
  explicit HostStates(bool keeps_weights, program::Tier tier = program::Tier::kHost)
      : keeps_weights_(keeps_weights), tier_(tier) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  bool keeps_weights_;
  program::Tier tier_;
};

Technique host_states_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
