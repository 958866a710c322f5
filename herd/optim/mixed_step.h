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
  // Model weights: undefined where they are fp32, since master.weights are the weights then. With `low`, bf16 weights
  // that the step reads and writes. Else 16-bit weights that it only writes, as the rounded master.weights.
  at::Tensor weights;
  // Lower halves, as int16, of fp32 weights whose upper halves are `weights`; undefined without them. The step reads
  // and writes them, and leaves master.weights alone.
  at::Tensor low;
  at::Tensor gradient;  // 16-bit or fp32
  // Its fp32 weights are read and written unless `low` is defined. Its states, of 16 bits or fp32, always are; its
  // gradient never is.
  Shard master;
};

// Works element by element, as the optimizer does: any cut of the flat memory gives the bits of the whole. Where all is
// fp32 it is the optimizer's own step.   Threads: any, on disjoint shards.
void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options);

}  // namespace herd::optim
