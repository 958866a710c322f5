// Continues texts, as tokens, by the programs of generation (program/generation_passes.h): the prompt pass reads the
// text, the token pass each new token. When the context is full, the prompt pass reads the later half of it anew and
// generation goes on, positions starting from 0 again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "herd/models/generate_options.h"
#include "herd/models/model.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/model_bindings.h"
#include "herd/strategies/compile_generation.h"

namespace herd::train {

// The most tokens that a pass reads while `max_tokens` are added to a prompt.
int64_t most_tokens_of_a_pass(int64_t prompt, int64_t max_tokens, int64_t context);

class Generation {
 public:
  // Borrows all but the programs, and takes the memory of their caches. `parameters` are of one of the programs.
  Generation(const strategies::GenerationPrograms& programs, const models::Model& model,
             runtime::FlatParameters& parameters, const runtime::AxisGroups& groups);

  // The new tokens, without the prompt. A prompt longer than the context counts with its last tokens. Throws kBadConfig
  // for an empty prompt and for options out of range. On all ranks of the programs, the same on each.
  std::vector<int64_t> run(std::span<const int64_t> prompt, const models::GenerateOptions& options = {});

 private:
  // Logits of the token after `tokens`, which follow the first `past`; the `number`th since the prompt.
  at::Tensor next_logits(std::span<const int64_t> tokens, int64_t past, int64_t number);

  int64_t context_;
  runtime::ModelBindings bindings_;
  runtime::Executor prompt_, token_;
};

}  // namespace herd::train
