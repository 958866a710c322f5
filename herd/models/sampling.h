// Sampling text, as tokens, from a decoder.
//   p_i ~ exp(logit_i / temperature) over the top_k largest logits; temperature 0 takes the largest.
// Token n draws from the Philox word of (seed, n): the same seed gives the same text.
// Each block hands its output to the next and lets it go, so two buffers of activations are in use whatever the depth;
// keys and values of past tokens are cached. When the context is full, the later half of it is read anew and generation
// goes on, positions starting from 0 again.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "herd/models/generate_options.h"
#include "herd/models/model.h"

namespace herd::models {

// The new tokens, without the prompt. The model's groups must be attached. Throws kBadConfig for an empty prompt and
// for options out of range. A prompt longer than the context counts with its last tokens.
std::vector<int64_t> generate(const Model& model, std::span<const int64_t> prompt, const GenerateOptions& options = {});

// One token from logits [V] (fp32, contiguous, CPU) with u in [0, 1): the inverse of the cumulative distribution,
// likeliest first. Pure.
int64_t pick_token(const at::Tensor& logits_V, const GenerateOptions& options, double u);

}  // namespace herd::models
