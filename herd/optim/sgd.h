// Stochastic gradient descent keeps one fp32 state per weight with momentum, none without. The equation is in
// herd/kernels/sgd_kernel.h. Threads: as Optimizer.
#pragma once

#include "herd/optim/optimizer.h"

namespace herd::optim {

struct SgdOptions {
  double momentum = 0.9;
  double weight_decay = 0.0;
  bool nesterov = false;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options);  // throws kBadConfig unless 0 <= momentum < 1, decay >= 0
  std::string_view name() const override { return "sgd"; }
  std::span<const std::string_view> state_names() const override;
  void step_raw(const RawShard& shard, const StepOptions& options) const override;
  void step_on_device(kernels::DeviceKernels& kernels, const kernels::OnStream& on, kernels::StepMemory memory,
                      const StepOptions& options) const override;

 private:
  kernels::SgdHyper hyper_of(const StepOptions& options) const;

  SgdOptions options_;
};

}  // namespace herd::optim
