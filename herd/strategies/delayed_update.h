// ZeRO-Offload's one-step delayed parameter update: the host updates with the gradients of a step while the device runs
// the next one.
//   w(t+1) = update(w(t), g(w(t-1))), with w(-1) = w(0): passes of step t read weights that lack the update of step
//   t-1. It follows the rewrite of states on the host (host_states.h), and moves updates from the end of the step to
//   its begin. A gradient then stays on the host from the end of a step to the update in the next one, and so does the
//   factor that clips it. The weights that an update makes wait there for the last pass that reads the older ones.
//   A gradient is copied to the host as soon as it is complete, so beside backward, whether a norm is needed or not.
//   The host holds all gradients that the rank updates with, and all of its weights in the precision of passes, beside
//   the states. An update takes no time of a step that is longer than it.
//   The first step of a run finds no gradient, and updates nothing.
// Source: Ren et al. 2021, arXiv:2101.06840, section 4.3.   Threads: pure.
#pragma once

#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class DelayedUpdate final : public Strategy {
 public:
  std::string name() const override { return "delayed update"; }
  program::Program rewrite(program::Program step) const override;  // REQUIRES updates on the host
};

Technique delayed_update_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
