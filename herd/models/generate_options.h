// Defines how a text is continued; sampling.h has the equation. Threads: plain data.
#pragma once

#include <cstdint>
#include <functional>

namespace herd::models {

struct GenerateOptions {
  int64_t max_tokens = 128;  // new tokens at most
  double temperature = 1;    // divides the logits; 0 = always the likeliest token
  int64_t top_k = 0;         // number of likeliest tokens to draw from; 0 = all
  int64_t vocabulary = 0;    // draws from tokens below it alone, which have a text; 0 = from all of the model
  uint64_t seed = 1;
  std::function<bool(int64_t token)> on_token = {};  // gets each new token; returns false to stop after it
};

}  // namespace herd::models
