#include "herd/nn/parameter.h"

#include <ATen/core/grad_mode.h>

#include "herd/base/check.h"

namespace herd::nn {

int64_t ParameterSpec::elements() const {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

Parameter::Parameter(ParameterSpec spec, int64_t offset, const at::Tensor& flat, const at::Tensor& flat_gradient,
                     bool frozen)
    : spec_(std::move(spec)), offset_(offset) {
  // detach() of a view shares the flat tensor's version counter; set_data would not.
  value_ = flat.narrow(0, offset, spec_.elements()).view(spec_.sizes).detach().requires_grad_(!frozen);
  gradient_ = flat_gradient.narrow(0, offset, spec_.elements()).view(spec_.sizes).detach();
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
