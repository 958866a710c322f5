#include "herd/nn/feed_forward.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include "herd/nn/linear.h"

namespace herd::nn {

at::Tensor feed_forward(const at::Tensor& x, const FeedForwardParameters& parameters) {
  const auto& [gate, up, up_bias, down, down_bias] = parameters;
  if (gate == nullptr) return linear(at::gelu(linear(x, up, up_bias), "tanh"), down, down_bias);
  const at::Tensor gated = at::silu(linear(x, *gate));
  return linear(gated * linear(x, up, up_bias), down, down_bias);
}

}  // namespace herd::nn
