// Takes one step of stochastic gradient descent with momentum on flat fp32 memory, in one pass.
//   g = factor * gradient + weight_decay * w     (the second term inside `decayed_ranges` only)
//   m = momentum * m + g                         (m starts at 0; no memory when momentum is 0)
//   w = w - rate * (nesterov ? g + momentum * m : m)
// It works element by element without fused multiply-add, so any split of the flat range into shards gives the bits of
// the whole.
// Source: Sutskever et al. 2013, proceedings.mlr.press/v28/sutskever13, in the form where the rate scales the sum.
#pragma once

#include <cstdint>
#include <span>

#include "herd/kernels/element_range.h"

namespace herd::kernels {

struct SgdHyper {
  double rate = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};

// Holds elements [offset, offset + count) of a flat tensor. `moment` may be null when momentum is 0.
struct SgdShard {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* moment = nullptr;
  int64_t count = 0;
  int64_t offset = 0;
};

// `decayed_ranges` are ordered and disjoint, in elements of the flat tensor. A null `factor` means 1.
// Threads: any, on disjoint shards.
void sgd(const SgdShard& shard, const SgdHyper& hyper, std::span<const ElementRange> decayed_ranges,
         const float* factor = nullptr);

}  // namespace herd::kernels
