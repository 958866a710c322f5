#include "herd/nn/parameter_group.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "herd/base/check.h"
#include "herd/nn/initial_weights.h"

namespace herd::nn {
namespace {

int64_t sum_elements(const std::vector<ParameterSpec>& specs) {
  int64_t sum = 0;
  for (const ParameterSpec& spec : specs) sum += spec.elements();
  return sum;
}

}  // namespace

ParameterGroup::ParameterGroup(std::string name, std::vector<ParameterSpec> specs, const GroupOptions& options)
    : name_(std::move(name)),
      frozen_(options.frozen),
      place_(options.place),
      initial_weights_(options.initial_weights),
      elements_(sum_elements(specs)),
      weights_(elements_, options.dtype, options.device),
      gradient_(elements_, options.gradient_dtype.value_or(options.dtype), options.device) {
  int64_t offset = 0;
  for (ParameterSpec& spec : specs) {
    const int64_t elements = spec.elements();
    parameters_.push_back(Parameter(std::move(spec), offset, weights_.flat(), gradient_.flat(), frozen_));
    offset += elements;
  }
  weights_.detach();
  gradient_.detach();
}

Parameter& ParameterGroup::find(std::string_view parameter_name) {
  std::string names;
  for (Parameter& parameter : parameters_) {
    if (parameter.spec().name == parameter_name) return parameter;
    names += " " + parameter.spec().name;
  }
  HERD_CHECK(false, "group " + name_ + " has no parameter " + std::string(parameter_name) + ", only" + names);
  std::abort();
}

void ParameterGroup::attach(const at::Tensor& flat_weights) { weights_.attach(flat_weights); }
void ParameterGroup::attach(void* flat_weights, std::shared_ptr<void> keep_alive) {
  weights_.attach(flat_weights, std::move(keep_alive));
}
void ParameterGroup::detach() { weights_.detach(); }

void ParameterGroup::attach_gradient(const at::Tensor& flat_gradient) { gradient_.attach(flat_gradient); }
void ParameterGroup::attach_gradient(void* flat_gradient, std::shared_ptr<void> keep_alive) {
  gradient_.attach(flat_gradient, std::move(keep_alive));
}
void ParameterGroup::detach_gradient() { gradient_.detach(); }

void ParameterGroup::begin_gradient() {
  for (Parameter& parameter : parameters_) parameter.written_ = false;
}

void ParameterGroup::finish_gradient() {
  if (frozen_) return;
  at::NoGradGuard no_grad;
  for (Parameter& parameter : parameters_) {
    if (parameter.take_beta() == 0.0) parameter.gradient_.zero_();
  }
}

void ParameterGroup::initialize(uint64_t seed, const at::Tensor& out, int64_t begin) const {
  const int64_t end = begin + out.numel();
  HERD_CHECK(begin >= 0 && end <= elements_ && out.is_contiguous(), "initial weights of a range outside the group");
  at::NoGradGuard no_grad;
  if (initial_weights_) return write_weights(initial_weights_(seed).narrow(0, begin, out.numel()), out.view(-1));
  for (const Parameter& parameter : parameters_) {
    const int64_t from = std::max(begin, parameter.offset());
    const int64_t to = std::min(end, parameter.offset() + parameter.spec().elements());
    if (from < to)
      write_initial_weights(parameter.spec(), seed, from - parameter.offset(),
                            out.view(-1).narrow(0, from - begin, to - from));
  }
}

Parameter& find(const GroupList& groups, std::string_view parameter_name) {
  HERD_CHECK(!groups.empty(), "no groups to find " + std::string(parameter_name) + " in");
  for (const auto& group : groups) {
    for (Parameter& parameter : group->parameters()) {
      if (parameter.spec().name == parameter_name) return parameter;
    }
  }
  return groups.front()->find(parameter_name);
}

}  // namespace herd::nn
