#include "herd/nn/norm.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/kernels/rms_norm.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gain's gradient is summed in so many parts of the rows, whatever the number of threads, so that the bits are the
// same.
constexpr int64_t kGainParts = 16;
// On a device there are more parts, as many as have some rows each.
constexpr int64_t kDeviceGainParts = 1024, kRowsOfPart = 8;

template <typename T>
T* row_of(const at::Tensor& tensor, int64_t row) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + row * tensor.size(-1) * tensor.element_size());
}

// Returns the gradients of x and the gain on a device. `around` is the gradient that reaches x by another way and is
// added to it; it may be undefined.
std::pair<at::Tensor, at::Tensor> backward_on_device(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& r,
                                                     const at::Tensor& dy, const at::Tensor& around, bool needs_gain) {
  const int64_t width = x.size(-1), num_parts = std::clamp<int64_t>(r.numel() / kRowsOfPart, 1, kDeviceGainParts);
  const at::Tensor dx = at::empty_like(x);
  const at::Tensor dgain = needs_gain ? at::empty({width}, r.options()) : at::Tensor();
  const at::Tensor parts = needs_gain ? at::empty({num_parts, width}, r.options()) : at::Tensor();
  kernels_of(x).rms_norm_backward(on_stream(x), {.type = dtype_of(x.scalar_type()),
                                                 .rows = r.numel(),
                                                 .width = width,
                                                 .dy = dy.const_data_ptr(),
                                                 .x = x.const_data_ptr(),
                                                 .gain = gain.const_data_ptr(),
                                                 .dsum = around.defined() ? around.const_data_ptr() : nullptr,
                                                 .r = r.const_data_ptr<float>(),
                                                 .dx = dx.mutable_data_ptr(),
                                                 .dgain = needs_gain ? dgain.mutable_data_ptr<float>() : nullptr,
                                                 .parts = needs_gain ? parts.mutable_data_ptr<float>() : nullptr,
                                                 .num_parts = num_parts});
  return {dx, needs_gain ? dgain.to(gain.scalar_type()) : at::Tensor()};
}

// Keeps its input and one fp32 number per row. torch's own rms_norm makes fp32 copies of a 16-bit input, and keeps the
// scaled input.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& gain, double eps) {
    const at::Tensor x = input.contiguous(), y = at::empty_like(x);
    const int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
    const at::Tensor r = at::empty({rows}, x.options().dtype(at::kFloat));
    context->save_for_backward({x, gain, r});
    if (!x.is_cpu()) {
      kernels_of(x).rms_norm(on_stream(x), {.type = dtype_of(x.scalar_type()),
                                            .rows = rows,
                                            .width = width,
                                            .x = x.const_data_ptr(),
                                            .gain = gain.const_data_ptr(),
                                            .epsilon = static_cast<float>(eps),
                                            .y = y.mutable_data_ptr(),
                                            .r = r.mutable_data_ptr<float>()});
      return y;
    }
    for_each_part(rows, [&](int64_t begin, int64_t end, int64_t) {
      kernels::rms_norm({dtype_of(x.scalar_type()), end - begin, width}, row_of<const void>(x, begin), gain.data_ptr(),
                        static_cast<float>(eps), row_of<void>(y, begin), r.mutable_data_ptr<float>() + begin);
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gain = saved[1], &r = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    if (!x.is_cpu()) {
      const auto [dx, dgain] = backward_on_device(x, gain, r, dy, {}, context->needs_input_grad(1));
      return {dx, dgain, at::Tensor()};
    }
    const at::Tensor dx = at::empty_like(x);
    const int64_t width = x.size(-1), rows = r.numel();
    const at::Tensor parts = at::zeros({std::min(kGainParts, rows), width}, r.options());
    for_each_part(rows, [&](int64_t begin, int64_t end, int64_t part) {
      kernels::rms_norm_backward({dtype_of(x.scalar_type()), end - begin, width}, row_of<const void>(dy, begin),
                                 row_of<const void>(x, begin), gain.data_ptr(), r.const_data_ptr<float>() + begin,
                                 row_of<void>(dx, begin), row_of<float>(parts, part));
    });
    return {dx, context->needs_input_grad(1) ? parts.sum(0).to(gain.scalar_type()) : at::Tensor(), at::Tensor()};
  }

 private:
  // Calls work(first row, row after the last, part) for each part of the rows.
  template <typename Work>
  static void for_each_part(int64_t rows, const Work& work) {
    const int64_t parts = std::min(kGainParts, rows);
    at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) work(rows * part / parts, rows * (part + 1) / parts, part);
    });
  }
};

// Adds and normalises the sum in one pass over a device's memory, and in backward adds the gradient that reaches the
// sum around the norm. Keeps the sum and one fp32 number per row.
struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& added,
                               const at::Tensor& gain, double eps) {
    const at::Tensor x = input.contiguous(), more = added.contiguous(), sum = at::empty_like(x), y = at::empty_like(x);
    const int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
    const at::Tensor r = at::empty({rows}, x.options().dtype(at::kFloat));
    kernels_of(x).rms_norm(on_stream(x), {.type = dtype_of(x.scalar_type()),
                                          .rows = rows,
                                          .width = width,
                                          .x = x.const_data_ptr(),
                                          .residual = more.const_data_ptr(),
                                          .gain = gain.const_data_ptr(),
                                          .epsilon = static_cast<float>(eps),
                                          .sum = sum.mutable_data_ptr(),
                                          .y = y.mutable_data_ptr(),
                                          .r = r.mutable_data_ptr<float>()});
    context->save_for_backward({sum, gain, r});
    return {sum, y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto [dx, dgain] = backward_on_device(saved[0], saved[1], saved[2], gradients[1].contiguous(),
                                                gradients[0].contiguous(), context->needs_input_grad(2));
    return {dx, dx, dgain, at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> add_and_norm(const NormStyle& style, const at::Tensor& x, const at::Tensor& added,
                                               Parameter& gain, Parameter* bias) {
  if (style.kind == NormKind::kRmsNorm && !x.is_cpu()) {
    const variable_list both = AddRmsNormFunction::apply(x, added, gain.value(), style.eps);
    return {both[0], both[1]};
  }
  const at::Tensor sum = x + added;
  return {sum, norm(style, sum, gain, bias)};
}

at::Tensor norm(const NormStyle& style, const at::Tensor& x, Parameter& gain, Parameter* bias) {
  const int64_t width = gain.spec().sizes[0];
  if (style.kind == NormKind::kRmsNorm) return RmsNormFunction::apply(x, gain.value(), style.eps);
  return at::layer_norm(x, {width}, gain.value(), bias ? bias->value() : at::Tensor(), style.eps);
}

}  // namespace herd::nn
