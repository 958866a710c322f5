#include "herd/nn/parameter.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "herd/base/check.h"

namespace herd::nn {

int64_t ParameterSpec::elements() const {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

ParameterSpec cut(ParameterSpec whole, int dim, std::vector<Span> spans) {
  HERD_CHECK(dim == 0 || spans.size() == 1, "several spans of dimension " + std::to_string(dim) + " of " + whole.name);
  whole.whole_sizes = whole.sizes;
  whole.cut_dim = dim;
  whole.sizes[static_cast<size_t>(dim)] = 0;
  for (const Span& span : spans) whole.sizes[static_cast<size_t>(dim)] += span.end - span.begin;
  whole.spans = std::move(spans);
  return whole;
}

void for_each_run(const ParameterSpec& spec, int64_t begin, int64_t end,
                  const std::function<void(int64_t local_begin, int64_t global_begin, int64_t count)>& visit) {
  if (spec.cut_dim < 0) {
    if (begin < end) visit(begin, begin, end - begin);
    return;
  }
  int64_t inner = 1, outer = 1;  // elements of an index of cut_dim, and indices of the dimensions before it
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (static_cast<int>(d) > spec.cut_dim) inner *= spec.sizes[d];
    if (static_cast<int>(d) < spec.cut_dim) outer *= spec.sizes[d];
  }
  const int64_t whole_row = spec.whole_sizes[static_cast<size_t>(spec.cut_dim)] * inner;
  int64_t at = 0;
  for (int64_t row = 0; row < outer; ++row) {
    for (const Span& span : spec.spans) {
      const int64_t count = (span.end - span.begin) * inner;
      const int64_t from = std::max(begin, at), to = std::min(end, at + count);
      if (from < to) visit(from, row * whole_row + span.begin * inner + from - at, to - from);
      at += count;
    }
  }
}

Parameter::Parameter(ParameterSpec spec, int64_t offset, const at::Tensor& flat, const at::Tensor& flat_gradient,
                     bool frozen)
    : spec_(std::move(spec)), offset_(offset) {
  // detach() of a view shares the flat tensor's version counter; set_data would not.
  value_ = flat.narrow(0, offset, spec_.elements()).view(spec_.sizes).detach().requires_grad_(!frozen);
  gradient_ = flat_gradient.narrow(0, offset, spec_.elements()).view(spec_.sizes).detach();
}

void Parameter::take_over(at::Tensor module_parameter) {
  const bool is_trained = !frozen();
  module_parameter.set_requires_grad(false);
  module_parameter.set_data(value_.detach());
  value_ = std::move(module_parameter);
  value_.set_requires_grad(is_trained);
}

double Parameter::take_beta() { return std::exchange(written_, true) ? 1.0 : 0.0; }

void Parameter::add_gradient(const at::Tensor& contribution) {
  HERD_CHECK(contribution.sizes() == gradient_.sizes(), "gradient of another shape for " + spec_.name);
  at::NoGradGuard no_grad;
  if (take_beta() == 0.0) {
    gradient_.copy_(contribution);
  } else {
    gradient_.add_(contribution);
  }
}

}  // namespace herd::nn
