// Sampling text, as tokens, from a decoder.
//   p_i ~ exp(logit_i / temperature) over the top_k largest logits; temperature 0 takes the largest.
// Token n draws from the Philox word of (seed, n): the same seed gives the same text. train/generation.h makes the
// logits. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "herd/models/generate_options.h"

namespace herd::models {

// One token from logits [V] (fp32, contiguous, CPU) with u in [0, 1): the inverse of the cumulative distribution,
// likeliest first.
int64_t pick_token(const at::Tensor& logits_V, const GenerateOptions& options, double u);

double drawn_for_token(uint64_t seed, uint64_t number);  // in [0, 1)

}  // namespace herd::models
