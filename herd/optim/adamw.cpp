#include "herd/optim/adamw.h"

#include <array>
#include <string>
#include <utility>

#include "herd/base/error.h"
#include "herd/kernels/adamw_kernel.h"

namespace herd::optim {
namespace {

void check_beta(const char* name, double value) {
  if (!(value >= 0 && value < 1)) {
    throw Error(Code::kBadConfig,
                std::string(name) + " = " + std::to_string(value) + " of adamw: needs 0 <= " + name + " < 1");
  }
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options) : options_(options) {
  check_beta("beta1", options.beta1);
  check_beta("beta2", options.beta2);
  if (!(options.epsilon > 0)) throw Error(Code::kBadConfig, "epsilon of adamw must be > 0");
  if (!(options.weight_decay >= 0)) throw Error(Code::kBadConfig, "weight_decay of adamw must be >= 0");
  if (options.freeze_step < 0)
    throw Error(Code::kBadConfig,
                "freeze_step = " + std::to_string(options.freeze_step) +
                    " of adamw: needs 0, for a second moment that never stands still, or the number of "
                    "steps after which it does");
}

std::span<const std::string_view> AdamW::state_names() const {
  static constexpr std::array<std::string_view, 2> kNames = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

kernels::AdamWHyper AdamW::hyper_of(const StepOptions& options) const {
  return {.rate = options.rate,
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .epsilon = options_.epsilon,
          .weight_decay = options_.weight_decay,
          .t = options.step + 1,
          .freeze_step = options_.freeze_step};
}

void AdamW::step_on_device(kernels::DeviceKernels& kernels, const kernels::OnStream& on, kernels::StepMemory memory,
                           const StepOptions& options) const {
  memory.factor = options.factor;
  kernels.adamw(on, {std::move(memory), hyper_of(options)});
}

void AdamW::step_raw(const RawShard& shard, const StepOptions& options) const {
  kernels::adamw({.weights = shard.weights,
                  .gradient = shard.gradient,
                  .moment1 = shard.states[0],
                  .moment2 = shard.states[1],
                  .count = shard.count,
                  .offset = shard.offset},
                 hyper_of(options), shard.decay, options.factor);
}

}  // namespace herd::optim
