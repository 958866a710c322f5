// Clips by the global norm (clip.h) on a device: all numbers stay there, and nothing waits for them.   Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd::optim {

// Writes the norm and the factor of gradients that are loss_scale times as large, fp64 and fp32, into one element each:
// norm = sqrt(s) / loss_scale, factor = min(1, max_norm / (norm + 1e-6)) / loss_scale, where s is the sum of `sums`
// (fp64, contiguous). max_norm 0 means no clipping. A norm that is not finite leaves the gradient as it is, or with
// `skips_overflow` gives factor -1, which lets the step pass.
void clip_on_device(const at::Tensor& sums, double max_norm, double loss_scale, bool skips_overflow,
                    const at::Tensor& norm, const at::Tensor& factor);

}  // namespace herd::optim
