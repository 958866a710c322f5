// Clips by the global norm (clip.h) on a device: all numbers stay there, and nothing waits for them.   Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd::optim {

struct DeviceClip {
  at::Tensor norm;    // fp64, []
  at::Tensor factor;  // fp32, []; what StepOptions::factor points at
};

// Returns the norm and the factor of gradients that are loss_scale times as large: norm = sqrt(s) / loss_scale, factor
// = min(1, max_norm / (norm + 1e-6)) / loss_scale, where s is the sum of `sums` (fp64, contiguous). max_norm 0 means no
// clipping. A norm that is not finite leaves the gradient as it is, or with `skips_overflow` gives factor -1, which
// lets the step pass.
DeviceClip clip_on_device(const at::Tensor& sums, double max_norm, double loss_scale = 1, bool skips_overflow = false);

}  // namespace herd::optim
