#include "herd/nn/feed_forward.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/nn/linear.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Computes silu(gate) * up on a device, and rounds once. Backward computes the silu again, so it is not kept.
struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor g = gate.contiguous(), u = up.contiguous(), y = at::empty_like(g);
    context->save_for_backward({g, u});
    kernels_of(g).gated(on_stream(g), {.type = dtype_of(g.scalar_type()),
                                       .count = g.numel(),
                                       .gate = g.const_data_ptr(),
                                       .up = u.const_data_ptr(),
                                       .y = y.mutable_data_ptr()});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &g = saved[0], &u = saved[1];
    const at::Tensor dy = gradients[0].contiguous(), dgate = at::empty_like(g), dup = at::empty_like(u);
    kernels_of(g).gated_backward(on_stream(g), {.type = dtype_of(g.scalar_type()),
                                                .count = g.numel(),
                                                .dy = dy.const_data_ptr(),
                                                .gate = g.const_data_ptr(),
                                                .up = u.const_data_ptr(),
                                                .dgate = dgate.mutable_data_ptr(),
                                                .dup = dup.mutable_data_ptr()});
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor feed_forward(const at::Tensor& x, const FeedForwardParameters& parameters) {
  const auto& [gate, up, up_bias, down, down_bias, exact_gelu] = parameters;
  if (gate == nullptr) return linear(at::gelu(linear(x, up, up_bias), exact_gelu ? "none" : "tanh"), down, down_bias);
  if (!x.is_cpu()) {
    const at::Tensor gate_F = linear(x, *gate);
    return linear(GatedFunction::apply(gate_F, linear(x, up, up_bias)), down, down_bias);
  }
  const at::Tensor gated = at::silu(linear(x, *gate));
  return linear(gated * linear(x, up, up_bias), down, down_bias);
}

}  // namespace herd::nn
