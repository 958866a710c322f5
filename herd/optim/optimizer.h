// An optimizer as a pure update of flat fp32 shards. Who holds the memory (whole replicas, ZeRO shards, a host tier)
// is not its business: it says how many state values a weight needs, and steps what it is given.
// Elementwise, so any cut of the flat weights into shards gives the bits of the whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "herd/kernels/element_range.h"

namespace herd::optim {

// Elements [offset, offset + weights.numel()) of a flat tensor. All tensors: fp32, contiguous, CPU, the same number of
// elements, no two overlapping.
struct Shard {
  at::Tensor weights;
  at::Tensor gradient;
  std::vector<at::Tensor> states;  // num_states() of them, zeros before the first step
  int64_t offset = 0;
  std::span<const kernels::ElementRange> decay = {};  // ordered, disjoint, in elements of the flat tensor
};

// The same in plain memory: what Shard says of tensors holds for its arrays.
struct FlatShard {
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
  virtual std::string_view name() const = 0;                          // "adamw"
  virtual std::span<const std::string_view> state_names() const = 0;  // as checkpoints end their names: "exp_avg"
  int num_states() const { return static_cast<int>(state_names().size()); }  // per weight; a momentum is the first
  // Throws kBug where a tensor breaks the rules of Shard.   Threads: any, on disjoint shards.
  void step(const Shard& shard, const StepOptions& options) const;
  virtual void step_flat(const FlatShard& shard, const StepOptions& options) const = 0;  // the step itself
};

// Adds [begin, end) to ordered ranges, joining it to the last where they touch.
void append_range(std::vector<kernels::ElementRange>& ranges, int64_t begin, int64_t end);

}  // namespace herd::optim
