// One step of AdamW on flat fp32 memory: each value is read once and written once.
//   g = factor * gradient            (factor: clipping, read from memory when the kernel runs; none = 1)
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g * g
//   w = w * (1 - rate * weight_decay) - rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// The decay applies inside `decay` only. Traffic: 4 reads and 3 writes of 4 bytes an element.
// Elementwise, no fused multiply-add: any split of the flat range into shards gives the bits of the whole.
// Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
#pragma once

#include <cstdint>
#include <span>

#include "herd/kernels/element_range.h"

namespace herd::kernels {

struct AdamWHyper {
  double rate = 1e-3;  // learning rate of this step
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  int64_t t = 1;  // this step's number, from 1
};

// Elements [offset, offset + count) of a flat tensor; no two of the four overlap, each is aligned to its element.
struct AdamWShard {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  int64_t count = 0;
  int64_t offset = 0;
};

// `decay`: ordered, disjoint, in elements of the flat tensor. `factor` may be null.   Threads: any, on disjoint shards.
void adamw(const AdamWShard& shard, const AdamWHyper& hyper, std::span<const ElementRange> decay,
           const float* factor = nullptr);

}  // namespace herd::kernels
