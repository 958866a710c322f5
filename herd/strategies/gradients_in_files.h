// ZeRO-Infinity's gradients: those that a rank updates wait in its file from their sum to their update, beside states
// and weights (values_in_files.h). The device has a pool of a few of them in place of all: 4 bytes a parameter less in
// fp32, of a rank's shards with ZeRO.
//   A gradient leaves the device after the op that completes it, while backward goes on. Its norm is taken one pass
//   later, so that the compute lane hardly waits for the sum. The update fetches it with its weights and states.
//   It is written and read once a step, 8 bytes a parameter in fp32 beside the 24 of weights and states. So each
//   gradient must be complete after one series of passes: with one micro-batch, or with all of them through a layer
//   before the next, and in shards or on a rank that is alone. It follows the rewrites that say where updates stand.
//   With strategy.offload = "nvme_all" weights pass from the file to passes, too (weight_window.h), so that the device
//   keeps nothing of a parameter from step to step.
// Source: Rajbhandari et al. 2021, arXiv:2104.07857, section 5.   Threads: pure.
#pragma once

#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class GradientsInFiles final : public Strategy {
 public:
  std::string name() const override { return "gradients in files"; }
  program::Program rewrite(program::Program step) const override;
};

bool has_gradients_in_files(const spec::RunFile& run);
Technique gradients_in_files_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
