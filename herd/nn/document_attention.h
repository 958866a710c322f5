// Computes attention in packed sequences: each token sees those of its own document, and under a causal mask those up
// to itself. Documents are computed one by one with torch's fused kernel, as if each were a sequence of its own; no
// mask is made.
//   The graph keeps q, k, v, the output, and one number a head and row. Beside it a pass holds the results of one
//   document.
// On a device each document takes a few kernels of its own, forward and backward, however short it is.
// Threads: torch's; pure.
// Source: Krell et al. 2021, arXiv:2107.02027 (packing without attention across sequences).
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

// REQUIRES document_begins of B sequences of T tokens. Head h reads key head h / (H/K).
at::Tensor document_attention(const at::Tensor& q_BHTd, const at::Tensor& k_BKTd, const at::Tensor& v_BKTd,
                              const std::vector<int64_t>& document_begins, bool causal);

}  // namespace herd::nn
