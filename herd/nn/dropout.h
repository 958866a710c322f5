// Dropout whose mask is a function of (seed, step, global sample, layer, site, position in the sample): any split of
// the batch draws what the whole would, and backward or a recomputation draws it again, so no mask is kept.
//   y = x * keep / (1 - p), where element i of a sample is dropped if its Philox word < p * 2^32.
//   Key mix(mix(seed, step), sample); counter (i / 4 low, i / 4 high, layer, site), word i mod 4.
// p = 0, or a context that is not training, costs nothing. Throws kBadConfig if p is not in [0, 1).
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

enum class Site : uint32_t { kEmbedding, kAttention, kAttentionOutput, kFeedForward };

// x (B, ..), row b belonging to context.samples[b]; it holds the sample's elements from `first` on.
at::Tensor dropout(const at::Tensor& x, double p, Site site, const Context& context, int64_t first = 0);

// x (R, D), rows of tokens as Context says; rows of padding stay as they are. Gives what dropout() gives of the whole.
at::Tensor dropout_rows(const at::Tensor& x_RD, double p, Site site, const Context& context);

}  // namespace herd::nn
