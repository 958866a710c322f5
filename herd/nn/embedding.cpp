#include "herd/nn/embedding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Looks up rows of the weight. The weight is an input so that backward reaches this node; its gradient is written to
// the parameter, not returned.
struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& weight,
                            Parameter* parameter) {
    context->save_for_backward({ids});
    context->saved_data["weight"] = reinterpret_cast<int64_t>(parameter);
    std::vector<int64_t> sizes = ids.sizes().vec();
    sizes.push_back(weight.size(1));
    return weight.index_select(0, ids.reshape({-1})).view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor ids = context->get_saved_variables()[0];
    Parameter& parameter = *reinterpret_cast<Parameter*>(context->saved_data["weight"].toInt());
    at::Tensor gradient = parameter.gradient();
    if (parameter.take_beta() == 0.0) gradient.zero_();
    add_rows(gradient, ids.reshape({-1}), gradients[0].reshape({-1, gradient.size(1)}));
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Looks up this rank's rows of the weight only; the result is 0 where another rank has the row.
struct CutEmbeddingFunction : torch::autograd::Function<CutEmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& weight,
                            Parameter* parameter) {
    const Span own = parameter->spec().spans.at(0);
    const at::Tensor rows = at::nonzero((ids >= own.begin).logical_and_(ids < own.end)).squeeze(1);
    const at::Tensor words = ids.index_select(0, rows) - own.begin;
    context->save_for_backward({rows, words});
    context->saved_data["weight"] = reinterpret_cast<int64_t>(parameter);
    at::Tensor y = at::zeros({ids.size(0), weight.size(1)}, weight.options());
    return y.index_copy_(0, rows, weight.index_select(0, words));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    Parameter& parameter = *reinterpret_cast<Parameter*>(context->saved_data["weight"].toInt());
    at::Tensor gradient = parameter.gradient();
    if (parameter.take_beta() == 0.0) gradient.zero_();
    add_rows(gradient, saved[1], gradients[0].index_select(0, saved[0]));
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// The same on a device, where the number of this rank's ids stays there: every id looks up a row.
struct CutDeviceEmbeddingFunction : torch::autograd::Function<CutDeviceEmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& weight,
                            Parameter* parameter) {
    const at::Tensor local = ids - parameter->spec().spans.at(0).begin;
    const at::Tensor is_own = (local >= 0).logical_and_(local < weight.size(0));
    context->save_for_backward({local});
    context->saved_data["weight"] = reinterpret_cast<int64_t>(parameter);
    const at::Tensor rows = weight.index_select(0, at::where(is_own, local, at::zeros({}, local.options())));
    return at::where(is_own.unsqueeze(1), rows, at::zeros({}, rows.options()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    Parameter& parameter = *reinterpret_cast<Parameter*>(context->saved_data["weight"].toInt());
    at::Tensor gradient = parameter.gradient();
    if (parameter.take_beta() == 0.0) gradient.zero_();
    add_rows(gradient, context->get_saved_variables()[0], gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// On a device it would wait for the ids: those of the data are checked where they are read.
void check_ids(const at::Tensor& ids, const Parameter& weight) {
  if (ids.numel() == 0 || !ids.is_cpu()) return;
  const auto [low, high] = ids.aminmax();
  const int64_t lowest = low.item<int64_t>(), highest = high.item<int64_t>(),
                vocabulary = weight.spec().sizes_of_whole()[0];
  if (lowest >= 0 && highest < vocabulary) return;
  throw Error(Code::kBadConfig, "token ids are in [" + std::to_string(lowest) + ", " + std::to_string(highest) +
                                    "], but " + weight.spec().name + " has rows [0, " + std::to_string(vocabulary) +
                                    ")\n  fix: a vocabulary of at least " + std::to_string(highest + 1));
}

}  // namespace

void add_rows(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& dy) {
  if (dy.is_cpu()) {
    at::Tensor sum = gradient;
    sum.index_add_(0, ids, dy.to(gradient.scalar_type()));
    return;
  }
  // Sorted, so that the order of each sum is that of the rows.
  const auto [sorted, order] = at::sort(ids, /*stable=*/true, 0, false);
  const at::Tensor rows = dy.contiguous();
  kernels_of(dy).embedding_gradient(on_stream(dy), {.type = dtype_of(rows.scalar_type()),
                                                    .gradient_type = dtype_of(gradient.scalar_type()),
                                                    .count = ids.numel(),
                                                    .width = gradient.size(1),
                                                    .rows = gradient.size(0),
                                                    .sorted_ids = sorted.const_data_ptr<int64_t>(),
                                                    .order = order.const_data_ptr<int64_t>(),
                                                    .dy = rows.const_data_ptr(),
                                                    .gradient = gradient.mutable_data_ptr()});
}

at::Tensor embedding(const at::Tensor& ids, Parameter& weight) {
  check_ids(ids, weight);
  return EmbeddingFunction::apply(ids, weight.value(), &weight);
}

at::Tensor vocabulary_parallel_embedding(const at::Tensor& ids, Parameter& weight) {
  check_ids(ids, weight);
  if (!ids.is_cpu()) return CutDeviceEmbeddingFunction::apply(ids, weight.value(), &weight);
  return CutEmbeddingFunction::apply(ids, weight.value(), &weight);
}

}  // namespace herd::nn
