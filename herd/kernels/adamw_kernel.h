// Takes one step of AdamW on flat fp32 memory; it reads each value once and writes it once.
//   g = factor * gradient            (factor clips; the kernel reads it from memory when it runs; null means 1)
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g * g
//   w = w * (1 - rate * weight_decay) - rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// After step F = freeze_step > 0, v stays as it is, and beta2^F stands for beta2^t. What moves a weight is then linear
// in m, and so in the gradients: one that error feedback brings late and at once moves it as far as those it stands
// for. The decay applies inside `decay` only. It reads 4 and writes 3 values of 4 bytes an element. It works element by
// element without fused multiply-add, so any split of the flat range into shards gives the bits of the whole.
// Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2; the freeze: Tang et al. 2021, arXiv:2102.02888,
// algorithm 1.
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
  int64_t t = 1;            // this step's number, from 1
  int64_t freeze_step = 0;  // steps after which v stands still; 0 = none
};

// Holds elements [offset, offset + count) of a flat tensor; no two of the four overlap, and each is aligned to its
// element.
struct AdamWShard {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  int64_t count = 0;
  int64_t offset = 0;
};

// `decay` is ordered and disjoint, in elements of the flat tensor. `factor` may be null.   Threads: any, on disjoint
// shards.
void adamw(const AdamWShard& shard, const AdamWHyper& hyper, std::span<const ElementRange> decay,
           const float* factor = nullptr);

}  // namespace herd::kernels
