#include "herd/nn/norm.h"

namespace herd::nn {

at::Tensor norm(const NormStyle& style, const at::Tensor& x, Parameter& gain, Parameter* bias) {
  const int64_t width = gain.spec().sizes[0];
  if (style.kind == NormKind::kRmsNorm) return at::rms_norm(x, {width}, gain.value(), style.eps);
  return at::layer_norm(x, {width}, gain.value(), bias ? bias->value() : at::Tensor(), style.eps);
}

}  // namespace herd::nn
