#include "herd/optim/device_clip.h"

#include "herd/base/check.h"
#include "herd/bridge/device_stream.h"

namespace herd::optim {

void clip_on_device(const at::Tensor& sums, double max_norm, double loss_scale, bool skips_overflow,
                    const at::Tensor& norm, const at::Tensor& factor) {
  HERD_CHECK(sums.is_contiguous() && sums.scalar_type() == at::kDouble, "sums of squares are contiguous fp64 numbers");
  kernels_of(sums).clip(on_stream(sums), {.sums = sums.const_data_ptr<double>(),
                                          .count = sums.numel(),
                                          .max_norm = max_norm,
                                          .loss_scale = loss_scale,
                                          .skips_overflow = skips_overflow,
                                          .norm = norm.mutable_data_ptr<double>(),
                                          .factor = factor.mutable_data_ptr<float>()});
}

}  // namespace herd::optim
