#include "herd/optim/clip.h"

#include <algorithm>
#include <cmath>

#include "herd/base/check.h"
#include "herd/kernels/sum_of_squares.h"

namespace herd::optim {

double gradient_squares(const at::Tensor& gradient) {
  HERD_CHECK(gradient.is_cpu() && gradient.scalar_type() == at::kFloat && gradient.is_contiguous(),
             "the gradient of a norm must be fp32, contiguous, on the CPU");
  return kernels::sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
}

Clip clip_by_norm(double sum_of_squares, double max_norm) {
  const double norm = std::sqrt(sum_of_squares);
  if (max_norm <= 0 || !std::isfinite(norm)) return {norm, 1.0f};
  return {norm, static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)))};
}

}  // namespace herd::optim
