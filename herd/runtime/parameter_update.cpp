#include "herd/runtime/parameter_update.h"

#include <ATen/Parallel.h>

#include "herd/optim/mixed_step.h"

namespace herd::runtime {

constexpr int64_t kElementsPerThread = 1 << 16;  // fewer elements are not worth another thread

GroupUpdate parameter_update(FlatParameters& parameters, const optim::Optimizer& optimizer, optim::LearningRate rate) {
  auto decays = std::make_shared<std::vector<std::vector<kernels::ElementRange>>>();
  for (int g = 0; g < parameters.num_groups(); ++g) {
    auto& ranges = decays->emplace_back();
    for (const nn::Parameter& parameter : parameters.group(g).parameters())
      if (parameter.spec().decay)
        optim::append_range(ranges, parameter.offset(), parameter.offset() + parameter.spec().elements());
  }
  return [&parameters, &optimizer, rate, decays](int index, int piece, const float* factor, int64_t step) {
    const kernels::ElementRange own = parameters.piece(index, piece);
    const optim::StepOptions options{.step = step, .rate = rate.of_step(step), .factor = factor};
    const at::Tensor weights = parameters.update_weights(index, piece),
                     gradient = parameters.update_gradient(index, piece);
    const at::Tensor master = parameters.update_master(index, piece), low = parameters.own_low_halves(index);
    const bool mixed = weights.scalar_type() != at::kFloat;
    const auto update = [&](int64_t begin, int64_t end) {
      auto part = [&](const at::Tensor& flat) {
        return flat.defined() ? flat.narrow(0, begin, end - begin) : at::Tensor();
      };
      optim::Shard shard{
          part(mixed ? master : weights), {}, {}, own.begin + begin, (*decays)[static_cast<size_t>(index)]};
      for (int k = 0; k < parameters.num_states(); ++k)
        shard.states.push_back(part(parameters.update_state(k, index, piece)));
      optim::mixed_step(optimizer, {mixed ? part(weights) : at::Tensor(), part(low), part(gradient), std::move(shard)},
                        options);
    };
    if (weights.is_cpu())
      at::parallel_for(0, own.size(), kElementsPerThread, update);
    else if (own.size() > 0)
      update(0, own.size());
    // What the host updates reaches the tensors with a fetch. Until then graphs may still need the weights as they are.
    // An empty part has no address to tell by, and nothing was written.
    const auto updates_own = [&] {
      return parameters.stays_on_host(index) ||
             weights.const_data_ptr() == parameters.own_weights(index).const_data_ptr();
    };
    if (own.size() > 0 && updates_own()) parameters.group(index).mark_weights_written();
  };
}

}  // namespace herd::runtime
