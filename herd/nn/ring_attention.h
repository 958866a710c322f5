// Computes attention of sequences whose tokens P ranks share in a zigzag (token_cut.h). Keys and values pass around the
// ranks, and each rank computes the attention of its own queries to those that it has, a part at a time:
//   step s   rank r has the keys and values of rank r - s; those of step s + 1 are on their way meanwhile
//   merge    out = (out_a e^(l_a) + out_b e^(l_b)) / (e^(l_a) + e^(l_b)), where l is the logarithm of a row's sum
//   backward  keys and values pass around once more, and behind them the sums of their gradients, which P sends bring
//   home
// Which tokens meet in which step is ring_steps.h's: all ranks have as many, but for packed sequences, where pairs of
// two documents are left out.
//   For h_kv the width of keys and e bytes an element, a rank sends forward 2 (P-1)/P T h_kv e, and backward as much
//   again and 2 T h_kv e' of gradients. These are summed in fp32: e' is 4, or 8 with fp64.
// It keeps q, k, v, out and one number a head and row, of its own tokens. Dropout draws what the whole would.
// Threads: torch's. Collective over the ranks that share tokens.
// Source: Liu, Zaharia & Abbeel 2023, arXiv:2310.01889.
#pragma once

#include "herd/nn/self_attention.h"

namespace herd::nn {

// x_BSW holds this rank's queries, keys and values, turned already: W = (H + 2K) d. Returns (B, S, H d).
// REQUIRES context.cut with a zigzag, and context.tensor_ranks where it has several parts.
at::Tensor ring_attention(const at::Tensor& x_BSW, const AttentionShape& shape, const Context& context);

}  // namespace herd::nn
