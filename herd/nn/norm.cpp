#include "herd/nn/norm.h"

namespace herd::nn {

constexpr double kEpsilon = 1e-5;

at::Tensor norm(NormKind kind, const at::Tensor& x, Parameter& gain, Parameter* bias) {
  const int64_t width = gain.spec().sizes[0];
  if (kind == NormKind::kRmsNorm) return at::rms_norm(x, {width}, gain.value(), kEpsilon);
  return at::layer_norm(x, {width}, gain.value(), bias ? bias->value() : at::Tensor(), kEpsilon);
}

}  // namespace herd::nn
