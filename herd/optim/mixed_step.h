// Takes an optimizer's step on memory of which some has 16 bits: weights, gradients and states. The step itself works
// on fp32 weights. For fp16 weights these are a master copy. For bf16 weights they are joined from the weights and
// their lower halves, since a bf16 number is the upper half of an fp32 one (bridge/split_float.h). It converts a few
// thousand elements at a time, so that they stay in the cache.
//   w32 = master, or weights and low;  g32 = gradient;  s32 = states;   w32, s32 = step(w32, g32, s32)
//   weights = round(w32);  low = what that leaves out;  states = round(s32)
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
#pragma once

#include "herd/optim/optimizer.h"

namespace herd::optim {

struct MixedShard {
  // Receives the rounded master.weights, or holds bf16 with `low`. It is undefined where all is fp32.
  at::Tensor weights;
  // Holds, as int16, the lower halves of fp32 weights whose upper halves are `weights`; then master.weights are not
  // read.
  at::Tensor low;
  at::Tensor gradient;  // 16-bit or fp32
  // fp32 weights, and states of 16 bits or fp32, which it carries also with `low`; its gradient is not read.
  Shard master;
};

// Works element by element, as the optimizer does: any cut of the flat memory gives the bits of the whole. Where all is
// fp32 it is the optimizer's own step.   Threads: any, on disjoint shards.
void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options);

}  // namespace herd::optim
