// Text from a model, one token after the other. Each new token costs one forward of the last `context` tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "herd/runtime/model_bindings.h"

namespace herd::train {

struct SampleOptions {
  int64_t tokens = 128;      // how many to add, at most
  double temperature = 0.8;  // 0 = always the likeliest
  int64_t top_k = 40;        // only the k likeliest; 0 = all
  uint64_t seed = 1;         // the same prompt, options and weights give the same text
  int end_of_text = -1;      // sampling stops after it; -1 = never
};

// Calls on_token with each new id. Returns prompt and new ids. Throws kBadConfig for an empty prompt or options that
// can't be.
std::vector<int> sample_tokens(const runtime::Chain& chain, int64_t context, std::vector<int> prompt,
                               const SampleOptions& options, const std::function<void(int)>& on_token);

// One id from logits [V], with u uniform in [0, 1): the inverse of the distribution of softmax(logits / temperature)
// over the top k. Pure.
int pick_token(const at::Tensor& logits_V, const SampleOptions& options, double u);

}  // namespace herd::train
