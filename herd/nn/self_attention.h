// Multi-head self-attention between its two projections.   B sequences, T tokens, D width, H heads of D / H. A rank
// that has a part of the heads has their rows of the first projection and their columns of the second, and gives a
// partial sum.
//   x_BTD -> qkv (B, T, 3D) -> H heads of softmax(q k^T / sqrt(D/H)) v -> y_BTD, before dropout and the residual.
// Without dropout torch's fused kernel runs, which keeps no T x T matrix (Dao et al. 2022, arXiv:2205.14135); with
// dropout the plain equation, which keeps two of them or computes them again.
//   Forward 8*B*T*D^2 + 4*B*T^2*D FLOP (causal masks half of the second term; it is counted whole).
// Source: Vaswani et al. 2017, arXiv:1706.03762.
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

struct AttentionParameters {
  Parameter& qkv_weight;  // (3D, D): rows of q, then k, then v
  Parameter* qkv_bias;    // (3D) or none
  Parameter& out_weight;  // (D, D)
  Parameter* out_bias;    // (D) or none
};

struct AttentionShape {
  int64_t heads = 1;
  bool causal = true;
  double dropout = 0;      // of attention weights
  bool recompute = false;  // with dropout: keeps no T x T matrix (attention_with_dropout.h)
  int64_t first_head = 0;  // of the whole model's, where ranks share them
};

at::Tensor self_attention(const at::Tensor& x_BTD, const AttentionParameters& parameters, const AttentionShape& shape,
                          const Context& context);

}  // namespace herd::nn
