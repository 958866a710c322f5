#include "herd/nn/linear.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "herd/nn/deferred_gradients.h"
#include "herd/nn/half_products_internal.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t to_int(Parameter* parameter) { return reinterpret_cast<int64_t>(parameter); }
Parameter* to_parameter(const c10::IValue& value) { return reinterpret_cast<Parameter*>(value.toInt()); }

constexpr int64_t kConvertedRows = 64;  // rows at a time, which bounds the fp32 copy that torch makes of 16-bit terms

void add_bias_gradient(Parameter& bias, const at::Tensor& dy) {
  if (bias.frozen()) return;
  at::Tensor gradient = bias.gradient();
  if (gradient.scalar_type() != dy.scalar_type()) {
    if (bias.take_beta() == 0.0) gradient.zero_();
    by_pieces(
        dy.size(0),
        [&](int64_t begin, int64_t count) {
          gradient.add_(dy.narrow(0, begin, count).sum(0, false, gradient.scalar_type()));
        },
        kConvertedRows);
  } else if (bias.take_beta() == 0.0) {
    at::sum_out(gradient, dy, {0});
  } else {
    gradient.add_(dy.sum(0));
  }
}

// Adds a 16-bit product to an fp32 sum.
void add_in_fp32(const at::Tensor& sum, const at::Tensor& product) {
  by_pieces(
      sum.size(0),
      [&](int64_t begin, int64_t count) { sum.narrow(0, begin, count).add_(product.narrow(0, begin, count)); },
      kConvertedRows);
}

// The weights are inputs so that backward reaches this node; their gradients are written, not returned.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, Parameter* weight_parameter,
                            Parameter* bias_parameter) {
    context->save_for_backward({x, weight});
    context->saved_data["weight"] = to_int(weight_parameter);
    context->saved_data["bias"] = to_int(bias_parameter);
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const at::Tensor y =
        (bias ? at::addmm(exact(*bias), exact(rows), exact(weight).t()) : at::mm(exact(rows), exact(weight).t()))
            .to(x.scalar_type());
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = gradients[0].reshape({-1, weight.size(0)});
    // The input without its history: that would keep the input of the block until the gradients are made.
    const auto add_gradients = [dy, rows = x.detach().reshape({-1, x.size(-1)}),
                                weight_parameter = to_parameter(context->saved_data["weight"]),
                                bias = to_parameter(context->saved_data["bias"])] {
      add_weight_gradient(*weight_parameter, dy, rows);
      if (bias != nullptr) add_bias_gradient(*bias, dy);
    };
    if (DeferredGradients* later = DeferredGradients::current())
      later->add(add_gradients);
    else
      add_gradients();
    at::Tensor dx;
    if (context->needs_input_grad(0)) dx = at::mm(exact(dy), exact(weight)).to(x.scalar_type()).view(x.sizes());
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias) {
  return LinearFunction::apply(x, weight.value(), bias ? std::optional(bias->value()) : std::nullopt, &weight, bias);
}

void add_weight_gradient(Parameter& weight, const at::Tensor& dy, const at::Tensor& x) {
  if (!weight.frozen()) add_product(weight.gradient(), weight.take_beta() == 0.0, dy, x);
}

void add_product(at::Tensor gradient, bool overwrites, const at::Tensor& dy, const at::Tensor& x) {
  at::NoGradGuard no_grad;
  if (multiplies_in_fp32(x)) {
    const at::Tensor rows = exact(x);
    by_pieces(gradient.size(0), [&](int64_t begin, int64_t count) {
      at::Tensor piece = gradient.narrow(0, begin, count);
      const at::Tensor dy_piece = exact(dy.narrow(1, begin, count));
      piece.copy_(overwrites ? at::mm(dy_piece.t(), rows) : exact(piece).addmm_(dy_piece.t(), rows));
    });
  } else if (gradient.scalar_type() != x.scalar_type()) {
    by_pieces(gradient.size(0), [&](int64_t begin, int64_t count) {
      at::Tensor piece = gradient.narrow(0, begin, count);
      const at::Tensor product = at::mm(dy.narrow(1, begin, count).t(), x);
      if (overwrites)
        piece.copy_(product);
      else
        add_in_fp32(piece, product);
    });
  } else if (overwrites) {
    at::mm_out(gradient, dy.t(), x);
  } else {
    gradient.addmm_(dy.t(), x);
  }
}

}  // namespace herd::nn
