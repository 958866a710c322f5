// Computes multi-head self-attention with its two projections. B sequences, T tokens, D width, H query heads and K
// key and value heads of width d; head h reads key head h / (H/K). A rank that has a part of the heads has their rows
// of the first projection and their columns of the second. It gives a partial sum.
//   x_BTD -> qkv (B, T, (H + 2K) d) -> H heads of softmax(q k^T / sqrt(d)) v -> y_BTD, before dropout and the residual.
// Where heads of q and k have norms, they go through these first (Dehghani et al. 2023, arXiv:2302.05442; RMS norms in
// Qwen3, arXiv:2505.09388). Rotary turns q and k before they meet and before they are cached (rotary.h); positions
// count from Context::past. Of packed sequences, each token sees its own document alone, and positions count from its
// beginning (documents.h). Without dropout torch's fused kernel runs, which keeps no T x T matrix (Dao et al. 2022,
// arXiv:2205.14135). With dropout the plain equation runs, which keeps two of them or computes them again.
//   Forward takes 4*B*T*D*(H + K)*d + 4*B*T^2*H*d FLOP; the second term is counted whole, though causal masks half.
// Threads: one at a time.
// Source: Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245 (grouped heads).
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/norm.h"

namespace herd::nn {

// Norms of the heads of queries and keys, with one gain for all heads; null = none.
struct HeadNorms {
  Parameter* q = nullptr;  // (d)
  Parameter* k = nullptr;  // (d)
  NormStyle style = {};
};

struct AttentionParameters {
  Parameter& qkv_weight;  // ((H + 2K) d, D): rows of q, then k, then v
  Parameter* qkv_bias;    // ((H + 2K) d) or none
  Parameter& out_weight;  // (D, H d)
  Parameter* out_bias;    // (D) or none
  // Rows of k, then v, where these are a parameter of their own; then qkv_weight has q's rows alone.
  Parameter* kv_weight = nullptr;
  Parameter* kv_bias = nullptr;
  HeadNorms norms = {};
};

struct AttentionShape {
  int64_t heads = 1, kv_heads = 1;
  at::Tensor rotary = {};  // frequencies (d / 2); undefined = q and k do not turn
  bool causal = true;
  double dropout = 0;      // probability for attention weights
  bool recompute = false;  // with dropout: keeps no T x T matrix (attention_with_dropout.h)
  int64_t first_head = 0;  // index of the first head in the whole model, where ranks share heads
};

at::Tensor self_attention(const at::Tensor& x_BTD, const AttentionParameters& parameters, const AttentionShape& shape,
                          const Context& context);

// Returns a product whose first heads, `queries` of queries and then `keys` of keys, have gone through their norms;
// what follows them stays. Without norms it returns the product.
at::Tensor normalise_heads(const at::Tensor& product, const HeadNorms& norms, int64_t queries, int64_t keys);

// Returns softmax(q k^T / sqrt(d)) v of heads that are projected and turned already, without caches.
at::Tensor attend(at::Tensor q_BHTd, at::Tensor k_BKTd, at::Tensor v_BKTd, const AttentionShape& shape,
                  const Context& context);

}  // namespace herd::nn
