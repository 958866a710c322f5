// Draws tokens from the logits of a decoder.
//   p_i ~ exp(logit_i / temperature) over the top_k largest logits; temperature 0 takes the largest logit.
// The Philox word of (seed, n) draws the n-th new token, so the same seed gives the same text. train/generation.h makes
// the logits. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "herd/models/generate_options.h"

namespace herd::models {

// Returns a token in [0, V) for logits [V] (fp32, contiguous, CPU) and u in [0, 1). It inverts the cumulative
// distribution at u, with the likeliest token first; of equals, the lower token comes first.
// REQUIRES options.temperature >= 0 and options.top_k >= 0.
int64_t pick_token(const at::Tensor& logits_V, const GenerateOptions& options, double u);

// Returns the u in [0, 1) of the new token with this number, the first being 0. Numbers count modulo 2^32.
double uniform_for_token(uint64_t seed, uint64_t number);

}  // namespace herd::models
