// Defines how text is sampled (herd/models/sampling.h has the rule).
#pragma once

#include <cstdint>
#include <functional>

namespace herd::models {

struct GenerateOptions {
  int64_t max_tokens = 128;
  double temperature = 1;
  int64_t top_k = 0;  // 0 = all
  uint64_t seed = 1;
  std::function<bool(int64_t token)> on_token = {};  // each new token; false stops
};

}  // namespace herd::models
