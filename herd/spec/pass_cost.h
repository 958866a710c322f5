// Defines what one pass over a block, forward or backward, costs on one rank for one micro-batch. Threads: plain data.
#pragma once

#include <cstdint>

namespace herd::spec {

struct PassCost {
  double matmul_flops = 0;     // multiply and add count as 2
  double attention_flops = 0;  // inside the attention kernel; a causal flash kernel skips the masked half
  double memory_bytes = 0;     // read and written by ops that memory limits: norms, activations, sums, optimizer
  int64_t scratch_bytes = 0;   // most bytes held beyond inputs and outputs while it runs
};

}  // namespace herd::spec
