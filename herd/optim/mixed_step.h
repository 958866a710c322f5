// An optimizer's step on memory of which some has 16 bits: weights, gradients and states. It works on fp32 weights all
// the same. Those of fp16 weights are a master copy beside them; those of bf16 weights are made of them and of the
// lower halves beside them, since a bf16 number is the upper half of an fp32 one (bridge/split_float.h). A few thousand
// elements at a time, so that what is converted stays in the cache.
//   w32 = master, or weights and low;  g32 = gradient;  s32 = states;   w32, s32 = step(w32, g32, s32)
//   weights = round(w32);  low = what that leaves out;  states = round(s32)
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
#pragma once

#include "herd/optim/optimizer.h"

namespace herd::optim {

struct MixedShard {
  at::Tensor weights;   // written: the rounding of master.weights; or bf16, with `low`. Undefined where all is fp32
  at::Tensor low;       // int16: of fp32 weights whose upper halves are `weights`; master.weights are not read then
  at::Tensor gradient;  // 16-bit or fp32
  Shard master;         // fp32 weights, states of 16 bits or fp32; its gradient is not read
};

// Elementwise, as the optimizer is: any cut of the flat memory gives the bits of the whole. Where all is fp32, the
// optimizer's own step.   Threads: any, on disjoint shards.
void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options);

}  // namespace herd::optim
