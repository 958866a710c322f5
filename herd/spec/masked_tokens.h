// What a bert hides of its sequences. Threads: pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "herd/base/error.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

// Returns how many tokens of a sequence a bert predicts: the whole number nearest to their share, and at least one.
inline int64_t masked_tokens(const RunFile& run) {
  const auto tokens = static_cast<double>(run.model.context);
  return std::clamp<int64_t>(std::llround(tokens * run.data.masked_fraction), 1, run.model.context);
}

// Returns how many tokens passes run on where so many targets count in the loss: of a bert all of its sequences.
inline int64_t tokens_of_passes(const RunFile& run, int64_t targets) {
  return run.model.is_bert() ? targets / masked_tokens(run) * run.model.context : targets;
}

// Returns the token that stands in place of hidden ones, in data of so many. Throws kBadConfig where the model has
// none.
inline int64_t mask_token(const RunFile& run, int64_t data_vocabulary) {
  const int64_t mask = run.data.mask_token < 0 ? data_vocabulary : run.data.mask_token, vocab = run.model.vocab;
  if (mask < vocab) return mask;
  throw Error(Code::kBadConfig, "model.kind = \"bert\" needs a token that stands in place of those that it predicts: " +
                                    std::to_string(mask) + " is none of model.vocab = " + std::to_string(vocab) +
                                    ", and the data has " + std::to_string(data_vocabulary) +
                                    "\n  fix: model.vocab = " + std::to_string(mask + 1) +
                                    " or more, or data.mask_token = a token of the vocabulary that no text has");
}

}  // namespace herd::spec
