// An optimizer's step with 16-bit weights and gradients: the optimizer works on an fp32 master copy, and the weights
// are its rounding, made once a step. A few thousand elements at a time, so that what is converted stays in the cache.
//   g32 = gradient;  master, states = step(master, g32, states);  weights = round(master)
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
#pragma once

#include "herd/optim/optimizer.h"

namespace herd::optim {

struct MixedShard {
  at::Tensor weights;   // 16-bit, written
  at::Tensor gradient;  // 16-bit
  Shard full;           // weights = the master copy; its gradient is not read
};

// Elementwise, as the optimizer is.   Threads: any, on disjoint shards.
void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options);

}  // namespace herd::optim
