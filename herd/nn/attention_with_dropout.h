// Computes attention by its plain equation, with dropout on its weights, since torch's fused kernel has none on CPU.
// B sequences, H query heads and K key and value heads of d, T tokens; head h reads key head h / (H/K).
//   y = dropout(softmax(q k^T / sqrt(d))) v       a token sees its own document alone; causal: and none after it
//   The graph keeps q, k, v and two T x T matrices a head: the softmax and what dropout leaves of it. With `recompute`
//   it keeps q, k and v alone; backward computes both again, with the same random numbers, so to the same bits.
// Threads: torch's; pure.
// Source: Vaswani et al. 2017, arXiv:1706.03762; Korthikanti et al. 2022, arXiv:2205.05198, section 5 (recompute).
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

struct AttentionDropout {
  bool causal = true;
  double probability = 0;
  bool recompute = false;
  int64_t first_head = 0;  // index in the whole model of the first of these H heads
};

at::Tensor attention_with_dropout(const at::Tensor& q_BHTd, const at::Tensor& k_BKTd, const at::Tensor& v_BKTd,
                                  const AttentionDropout& options, const Context& context);

}  // namespace herd::nn
