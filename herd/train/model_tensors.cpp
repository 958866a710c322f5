#include "herd/train/model_tensors.h"

namespace herd::train {

std::vector<NamedTensor> weight_tensors(const runtime::FlatParameters& parameters) {
  std::vector<NamedTensor> tensors;
  for (int g = 0; g < parameters.num_groups(); ++g)
    for (const nn::Parameter& parameter : parameters.group(g).parameters())
      tensors.push_back(whole_tensor(parameter.spec().name, parameter.value().detach()));
  return tensors;
}

std::vector<NamedTensor> state_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer) {
  std::vector<NamedTensor> tensors;
  for (int k = 0; k < parameters.num_states(); ++k)
    for (int g = 0; g < parameters.num_groups(); ++g)
      for (const nn::Parameter& parameter : parameters.group(g).parameters())
        tensors.push_back(
            whole_tensor(parameter.spec().name + "." + std::string(optimizer.state_names()[static_cast<size_t>(k)]),
                         parameters.group_state(k, g)
                             .narrow(0, parameter.offset(), parameter.spec().elements())
                             .view(parameter.spec().sizes)));
  return tensors;
}

}  // namespace herd::train
