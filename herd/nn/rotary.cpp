#include "herd/nn/rotary.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <numbers>

#include "herd/base/check.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/nn/half_products_internal.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRotatedTokens = 64;  // tokens rotated at a time, which bounds the fp32 copies of 16-bit values

// Returns frequency f as the model's context extension scales it.
double scaled_frequency(const Rotary& rotary, double f) {
  if (rotary.scaling == RotaryScaling::kNone) return f;
  if (rotary.scaling == RotaryScaling::kLinear) return f / rotary.factor;
  const double rounds = static_cast<double>(rotary.original_context) * f / (2 * std::numbers::pi);
  if (rounds < rotary.low_freq_factor) return f / rotary.factor;
  if (rounds > rotary.high_freq_factor) return f;
  const double blend = (rounds - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor);
  return (1 - blend) * f / rotary.factor + blend * f;
}

// Rotates the first `heads` heads in place by sign * angle; `first` is the position of the first token.
void rotate(const at::Tensor& x_BTC, const at::Tensor& frequencies, int64_t heads, int64_t first, double sign) {
  const at::NoGradGuard no_grad;
  const int64_t B = x_BTC.size(0), T = x_BTC.size(1), half = frequencies.numel();
  if (!x_BTC.is_cpu()) {
    HERD_CHECK_EQ(x_BTC.stride(2), 1);
    const auto* f = frequencies.const_data_ptr<float>();
    kernels_of(x_BTC).rotary(on_stream(x_BTC), {.type = dtype_of(x_BTC.scalar_type()),
                                                .x = x_BTC.mutable_data_ptr(),
                                                .batch = B,
                                                .tokens = T,
                                                .heads = heads,
                                                .batch_stride = x_BTC.stride(0),
                                                .token_stride = x_BTC.stride(1),
                                                .frequencies = std::vector<float>(f, f + half),
                                                .first = first,
                                                .sign = static_cast<float>(sign)});
    return;
  }
  const at::Tensor pairs = x_BTC.narrow(2, 0, heads * 2 * half).view({B, T, heads, 2, half});
  by_pieces(
      T,
      [&](int64_t begin, int64_t count) {
        const at::Tensor positions = at::arange(first + begin, first + begin + count, at::kFloat);
        const at::Tensor angles = (positions.unsqueeze(1) * frequencies).unsqueeze(1);
        const at::Tensor cosine = angles.cos(), sine = angles.sin().mul_(sign);
        const at::Tensor a = pairs.narrow(1, begin, count).select(3, 0), b = pairs.narrow(1, begin, count).select(3, 1);
        const at::Tensor rotated = (a * cosine).sub_(b * sine);
        b.copy_((b * cosine).add_(a * sine));
        a.copy_(rotated);
      },
      kRotatedTokens);
}

// Rotates the tokens of spans, which are pairs (begin, count), one span after the other. With `by_row` each row of x
// has spans of its own, which follow those of the row before.
void rotate_spans(const at::Tensor& x_BTC, const at::Tensor& frequencies, int64_t heads,
                  const std::vector<int64_t>& spans, bool by_row, double sign) {
  const int64_t T = x_BTC.size(1);
  int64_t at = 0, row = 0;
  for (size_t i = 0; i < spans.size(); i += 2) {
    const at::Tensor rows = by_row ? x_BTC.narrow(0, row, 1) : x_BTC;
    rotate(rows.narrow(1, at, spans[i + 1]), frequencies, heads, spans[i], sign);
    at += spans[i + 1];
    if (by_row && at == T) at = 0, ++row;
  }
}

// Rotates heads in place, and their gradient back.
struct RotateHeads : torch::autograd::Function<RotateHeads> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& frequencies, int64_t heads,
                            const std::vector<int64_t>& spans, bool by_row) {
    context->saved_data["frequencies"] = frequencies;
    context->saved_data["heads"] = heads;
    context->saved_data["spans"] = spans;
    context->saved_data["by_row"] = by_row;
    const at::Tensor rotated = x.detach();
    rotate_spans(rotated, frequencies, heads, spans, by_row, 1);
    return rotated;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    rotate_spans(gradients[0], context->saved_data["frequencies"].toTensor(), context->saved_data["heads"].toInt(),
                 context->saved_data["spans"].toIntVector(), context->saved_data["by_row"].toBool(), -1);
    return {gradients[0], at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rotary_frequencies(const Rotary& rotary, int64_t head_width) {
  HERD_CHECK_EQ(head_width % 2, 0);
  at::Tensor frequencies = at::empty({head_width / 2}, at::kFloat);
  for (int64_t i = 0; i < head_width / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_width);
    frequencies.mutable_data_ptr<float>()[i] =
        static_cast<float>(scaled_frequency(rotary, std::pow(rotary.theta, exponent)));
  }
  return frequencies;
}

at::Tensor rotate_heads(const at::Tensor& x_BTC, const at::Tensor& frequencies, int64_t heads,
                        const std::vector<TokenSpan>& spans) {
  std::vector<int64_t> pairs;
  for (const auto& [begin, count] : spans) pairs.insert(pairs.end(), {begin, count});
  return RotateHeads::apply(x_BTC, frequencies, heads, pairs, false);
}

at::Tensor rotate_heads_by_row(const at::Tensor& x_BTC, const at::Tensor& frequencies, int64_t heads,
                               const std::vector<std::vector<TokenSpan>>& spans_of_rows) {
  std::vector<int64_t> pairs;
  for (const auto& spans : spans_of_rows)
    for (const auto& [begin, count] : spans) pairs.insert(pairs.end(), {begin, count});
  return RotateHeads::apply(x_BTC, frequencies, heads, pairs, true);
}

}  // namespace herd::nn
