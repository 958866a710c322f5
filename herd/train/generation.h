// Continues texts, as tokens, by two programs (program/generation_passes.h): the prompt pass reads the text, the token
// pass each new token. When the context is full, the prompt pass reads the later half of it again, and positions start
// from 0 there. Threads: one at a time.
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

// Throws kBadConfig for an empty prompt and for options out of range.
void check_request(std::span<const int64_t> prompt, const models::GenerateOptions& options);

// Returns the most tokens that one pass reads while `max_tokens` are added to a prompt of `prompt` tokens.
int64_t max_tokens_per_pass(int64_t prompt, int64_t max_tokens, int64_t context);

class Generation {
 public:
  // Borrows `model`, `parameters` and `groups`, which must outlive this, and copies the programs. Allocates their
  // caches. `parameters` and `groups` are made for either of the two programs, which hold the same weights.
  Generation(const strategies::GenerationPrograms& programs, const models::Model& model,
             runtime::FlatParameters& parameters, const runtime::AxisGroups& groups);

  // Returns the new tokens, without the prompt. Of a prompt longer than the context, it reads the last tokens. Throws
  // kBadConfig for an empty prompt, for options out of range, and where a logit is NaN or infinite. Collective over the
  // programs' ranks, with the same arguments and the same result on each.
  std::vector<int64_t> run(std::span<const int64_t> prompt, const models::GenerateOptions& options = {});

 private:
  // Returns the logits [V] of the token after `tokens`, which follow the first `past` ones. `number` counts the new
  // tokens before it.
  at::Tensor next_logits(std::span<const int64_t> tokens, int64_t past, int64_t number);

  int64_t context_;
  runtime::ModelBindings bindings_;
  runtime::Executor prompt_, token_;
};

}  // namespace herd::train
