#include "herd/optim/sgd.h"

#include <array>
#include <string>
#include <utility>

#include "herd/base/error.h"
#include "herd/kernels/sgd_kernel.h"

namespace herd::optim {

Sgd::Sgd(const SgdOptions& options) : options_(options) {
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    throw Error(Code::kBadConfig,
                "momentum = " + std::to_string(options.momentum) + " of sgd: needs 0 <= momentum < 1");
  }
  if (!(options.weight_decay >= 0)) throw Error(Code::kBadConfig, "weight_decay of sgd must be >= 0");
}

std::span<const std::string_view> Sgd::state_names() const {
  static constexpr std::array<std::string_view, 1> kNames = {"momentum"};
  return std::span(kNames).first(options_.momentum == 0 ? 0 : 1);
}

kernels::SgdHyper Sgd::hyper_of(const StepOptions& options) const {
  return {.rate = options.rate,
          .momentum = options_.momentum,
          .weight_decay = options_.weight_decay,
          .nesterov = options_.nesterov};
}

void Sgd::step_on_device(kernels::DeviceKernels& kernels, const kernels::OnStream& on, kernels::StepMemory memory,
                         const StepOptions& options) const {
  memory.factor = options.factor;
  kernels.sgd(on, {std::move(memory), hyper_of(options)});
}

void Sgd::step_raw(const RawShard& shard, const StepOptions& options) const {
  kernels::sgd({.weights = shard.weights,
                .gradient = shard.gradient,
                .moment = shard.states.empty() ? nullptr : shard.states[0],
                .count = shard.count,
                .offset = shard.offset},
               hyper_of(options), shard.decay, options.factor);
}

}  // namespace herd::optim
