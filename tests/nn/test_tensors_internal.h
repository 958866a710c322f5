// Tensors for the tests of layers, and a group that holds memory of its own.
#pragma once

#include "herd/nn/parameter_group.h"

namespace herd::nn {

inline at::Tensor wave(at::IntArrayRef sizes, double frequency) {  // values in [-1, 1], no two alike
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  return at::arange(elements, at::kDouble).mul_(frequency).sin_().to(at::kFloat).view(sizes);
}

struct OwnedGroup {
  explicit OwnedGroup(std::vector<ParameterSpec> specs, uint64_t seed = 11, const GroupOptions& options = {})
      : group(std::make_shared<ParameterGroup>("g", std::move(specs), options)),
        weights(at::empty({group->elements()}, options.dtype)),
        gradient(at::full({group->elements()}, std::nanf(""), group->gradient_dtype())) {
    group->initialize(seed, weights);
    group->attach(weights);
    group->attach_gradient(gradient);
    group->begin_gradient();
  }
  std::shared_ptr<ParameterGroup> group;
  at::Tensor weights, gradient;
};

}  // namespace herd::nn
