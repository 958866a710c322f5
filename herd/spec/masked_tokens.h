// Threads: pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "herd/spec/run_file.h"

namespace herd::spec {

// Returns how many tokens of a sequence a bert predicts: the whole number nearest to their share, and at least one.
inline int64_t masked_tokens(const RunFile& run) {
  const auto tokens = static_cast<double>(run.model.context);
  return std::clamp<int64_t>(std::llround(tokens * run.data.masked_fraction), 1, run.model.context);
}

}  // namespace herd::spec
