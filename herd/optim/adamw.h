// AdamW keeps two fp32 states per weight. The equation is in herd/kernels/adamw_kernel.h. Threads: as Optimizer.
#pragma once

#include "herd/optim/optimizer.h"

namespace herd::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  int64_t freeze_step = 0;  // steps after which the second moment stands still; 0 = none
};

class AdamW final : public Optimizer {
 public:
  // Throws kBadConfig unless 0 <= betas < 1, epsilon > 0, decay >= 0 and freeze_step >= 0.
  explicit AdamW(const AdamWOptions& options);
  std::string_view name() const override { return "adamw"; }
  std::span<const std::string_view> state_names() const override;
  void step_raw(const RawShard& shard, const StepOptions& options) const override;
  void step_on_device(kernels::DeviceKernels& kernels, const kernels::OnStream& on, kernels::StepMemory memory,
                      const StepOptions& options) const override;

 private:
  kernels::AdamWHyper hyper_of(const StepOptions& options) const;

  AdamWOptions options_;
};

}  // namespace herd::optim
