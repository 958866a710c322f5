// An optimizer is a pure update of flat fp32 shards. It does not know who holds the memory: whole replicas, ZeRO
// shards or a host tier. It says how many state values a weight needs, and steps what it gets. It works element by
// element, so any cut of the flat weights into shards gives the bits of the whole. Threads: any, on disjoint shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "herd/kernels/device_kernels.h"
#include "herd/kernels/element_range.h"

namespace herd::optim {

// Holds elements [offset, offset + weights.numel()) of a flat tensor. All tensors are fp32, contiguous, on the CPU,
// have the same number of elements and do not overlap.
struct Shard {
  at::Tensor weights;
  at::Tensor gradient;
  std::vector<at::Tensor> states;  // num_states() tensors, zeros before the first step
  int64_t offset = 0;
  std::span<const kernels::ElementRange> decay = {};  // ordered, disjoint, in elements of the flat tensor
};

// Describes a Shard as plain memory; the rules for its tensors hold for these arrays.
struct RawShard {
  float* weights = nullptr;
  const float* gradient = nullptr;
  std::span<float* const> states = {};
  int64_t count = 0;
  int64_t offset = 0;
  std::span<const kernels::ElementRange> decay = {};
};

struct StepOptions {
  int64_t step = 0;               // steps done before; the equations use t = step + 1
  double rate = 0;                // learning rate of this step (learning_rate.h)
  const float* factor = nullptr;  // multiplies the gradient (clip.h); read when the step runs; null = 1
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;  // returns "adamw"
  // Returns the suffix of each state in checkpoint names: "exp_avg".
  virtual std::span<const std::string_view> state_names() const = 0;
  // Returns how many state values a weight has; where there is a momentum, it is state 0.
  int num_states() const { return static_cast<int>(state_names().size()); }
  // Throws kBug where a tensor breaks the rules of Shard.
  void step(const Shard& shard, const StepOptions& options) const;
  virtual void step_raw(const RawShard& shard, const StepOptions& options) const = 0;  // takes the step itself
  // Enqueues the step on a device. `memory` has all but the factor; options.factor points to the device's memory.
  virtual void step_on_device(kernels::DeviceKernels& kernels, const kernels::OnStream& on, kernels::StepMemory memory,
                              const StepOptions& options) const = 0;
};

// Adds [begin, end) to ordered ranges, and joins it to the last one where they touch.
void append_range(std::vector<kernels::ElementRange>& ranges, int64_t begin, int64_t end);

}  // namespace herd::optim
