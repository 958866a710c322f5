#include "herd/optim/clip.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "herd/base/check.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/kernels/sum_of_squares.h"

namespace herd::optim {

double sum_of_squares(const at::Tensor& gradient) {
  HERD_CHECK(gradient.is_cpu() && gradient.is_floating_point() && gradient.is_contiguous(),
             "the gradient of a norm must be floating, contiguous, on the CPU");
  if (gradient.scalar_type() != at::kFloat) {  // converts pieces that stay in the cache
    constexpr int64_t kPieceElements = 1 << 14;
    const at::Tensor piece = at::empty({std::min(kPieceElements, gradient.numel())}, at::kFloat);
    double sum = 0;
    for (int64_t begin = 0; begin < gradient.numel(); begin += kPieceElements) {
      const int64_t size = std::min(kPieceElements, gradient.numel() - begin);
      piece.narrow(0, 0, size).copy_(gradient.narrow(0, begin, size));
      sum += kernels::sum_of_squares(piece.const_data_ptr<float>(), size);
    }
    return sum;
  }
  return kernels::sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
}

at::Tensor sum_of_squares_on_device(const at::Tensor& gradient) {
  HERD_CHECK(gradient.is_floating_point() && gradient.is_contiguous(), "the gradient of a norm must be contiguous");
  const at::TensorOptions options = gradient.options().dtype(at::kDouble);
  const at::Tensor sum = at::zeros({1}, options), parts = at::empty({kernels::kSumParts}, options);
  kernels_of(gradient).sum_of_squares(on_stream(gradient), {.type = dtype_of(gradient.scalar_type()),
                                                            .values = gradient.const_data_ptr(),
                                                            .count = gradient.numel(),
                                                            .sum = sum.mutable_data_ptr<double>(),
                                                            .parts = parts.mutable_data_ptr<double>()});
  return sum;
}

Clip clip_by_norm(double sum_of_squares, double max_norm) {
  const double norm = std::sqrt(sum_of_squares);
  if (max_norm <= 0 || !std::isfinite(norm)) return {norm, 1.0f};
  return {norm, static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)))};
}

}  // namespace herd::optim
