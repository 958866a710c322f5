// ZeRO-Offload: optimizer states live in the host's memory, and the update runs on the host.
//   The device holds a parameter's weight and gradient. The host holds the fp32 weight and the moments, 12 bytes a
//   parameter with AdamW. Beside them it has staging buffers, one for each of two groups.
//   Each group is evicted (lane copy-out), stepped (lane host) and fetched (lane copy-in). With two buffers the three
//   lanes work on neighbouring groups at once. The next step's forward waits for the weights of its own block alone, so
//   updates of later blocks overlap with it.
//   Where updates wait for the norm of all gradients, they follow each other in the order of blocks. Elsewhere (clip
//   and check_finite off) a group is updated once its gradient is complete and its weights are not read again in the
//   step, so beside the backward of earlier blocks. A step copies a gradient out and a weight in for each parameter
//   that the rank updates: all, or those of its shard. With fp32 the host keeps the weights that it steps, and the
//   device has a copy. 16-bit weights are made anew from the master copy among the states.
//   Files may take the host's place as keeper (values_in_files.h). Then a group is updated in pieces of
//   strategy.bucket, one after the other, in whole blocks of 4096 elements: the host has buffers for two pieces in
//   place of two groups, g7:2.host is piece 2 of g7, and a fetch puts a piece into the weight that the device has as
//   one.
// Source: Ren et al. 2021, arXiv:2101.06840, section 4.
#pragma once

#include <cstdint>
#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class HostStates final : public Strategy {
 public:
  // `keeps_weights`: weights stay where the states do; else each step makes them from the states. `piece_elements` are
  // the most of a piece, whole blocks of 4096; 0 = each group is updated as one.
  explicit HostStates(bool keeps_weights, int64_t piece_elements = 0)
      : keeps_weights_(keeps_weights), piece_elements_(piece_elements) {}
  std::string name() const override { return "states on the host"; }
  program::Program rewrite(program::Program step) const override;

 private:
  const bool keeps_weights_;
  const int64_t piece_elements_;
};

Technique host_states_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
