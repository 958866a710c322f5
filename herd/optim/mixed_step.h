// An optimizer's step on memory of which some has 16 bits: weights and gradients beside an fp32 master copy, and
// states. A few thousand elements at a time, so that what is converted stays in the cache.
//   g32 = gradient;  s32 = states;  master, s32 = step(master, g32, s32);  weights = round(master);  states =
//   round(s32)
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
#pragma once

#include "herd/optim/optimizer.h"

namespace herd::optim {

struct MixedShard {
  at::Tensor weights;   // 16-bit, written: the rounding of full.weights. Undefined where those are the weights
  at::Tensor gradient;  // 16-bit or fp32
  Shard full;           // fp32 weights, states of 16 bits or fp32; its gradient is not read
};

// Elementwise, as the optimizer is: any cut of the flat memory gives the bits of the whole. Where all is fp32, the
// optimizer's own step.   Threads: any, on disjoint shards.
void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options);

}  // namespace herd::optim
