// Gives torch's fused attention with the logarithm of each row's sum, by which parts of a row computed apart are
// merged, and its backward from the sum over a whole row. The functions are torch's private ones: of CPUs; of CUDA
// flash attention for 16 bits, and the memory-efficient kernel for fp32 and wide heads, which copies keys and values of
// heads that share them; and of other devices the one that they override.
//   q (B, H, S, d), k and v (B, K, L, d); head h reads key head h / (H/K)
//   out = softmax(q k^T / sqrt(d)) v (B, H, S, d);  log_sum = log(sum of exp(q k^T / sqrt(d))) (B, H, S), fp32 or fp64
// Causal: token i sees tokens 0 .. i, where S = L. Threads: torch's; pure.
// Source: Dao et al. 2022, arXiv:2205.14135.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd {

struct AttendedRows {
  at::Tensor out, log_sum;
};

AttendedRows flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

struct AttentionGradients {
  at::Tensor dq, dk, dv;
};

// `rows` are those of all keys that the queries meet, of which k and v may be a part: the gradients are then the part's
// contributions.
AttentionGradients flash_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const AttendedRows& rows, bool causal);

}  // namespace herd
