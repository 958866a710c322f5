// Drops elements by a mask that is a function of (seed, step, global sample, layer, site, position in the sample). Any
// split of the batch draws what the whole would. Backward or a recomputation draws the mask again, so none is kept.
//   y = x * keep / (1 - p), where element i of a sample is dropped if its Philox word < p * 2^32.
//   The key is mix(mix(seed, step), sample); the counter (i / 4 low, i / 4 high, layer, site), word i mod 4.
// p = 0, or a context that is not training, costs nothing. Throws kBadConfig if p is not in [0, 1). Threads: torch's;
// pure.
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

enum class DropoutSite : uint32_t { kEmbedding, kAttention, kAttentionOutput, kFeedForward };

// Row b of x (B, ..) belongs to context.samples[b], and holds the sample's elements from `first` on.
at::Tensor dropout(const at::Tensor& x, double p, DropoutSite site, const Context& context, int64_t first = 0);

// Row b of x (B, S, D) belongs to context.samples[b], and holds those of its tokens that context.cut says. Rows of x
// (R, D) are tokens as Context says; rows of padding stay as they are. The result equals the same tokens of dropout()
// of the whole activation.
at::Tensor dropout_tokens(const at::Tensor& x, double p, DropoutSite site, const Context& context);

// Weights x (B, H, Q, L) are those of pairs of tokens: of the heads from first_head on, of the queries and keys of
// these spans. The result equals the same pairs of dropout() of all pairs of context.cut.tokens tokens.
at::Tensor dropout_pairs(const at::Tensor& x_BHQL, double p, DropoutSite site, const Context& context,
                         int64_t first_head, const std::vector<TokenSpan>& queries, const std::vector<TokenSpan>& keys);

}  // namespace herd::nn
