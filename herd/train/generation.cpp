#include "herd/train/generation.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "herd/base/error.h"
#include "herd/kernels/finite.h"
#include "herd/models/sampling.h"
#include "herd/program/program_names.h"
#include "herd/train/peer_listener.h"

namespace herd::train {
namespace {

void check_logits(const at::Tensor& logits, int64_t number) {
  const int64_t token = kernels::first_non_finite(logits.const_data_ptr<float>(), logits.numel());
  if (token < 0) return;
  throw Error(Code::kBadConfig, "the logit of token " + std::to_string(token) + " for new token " +
                                    std::to_string(number) + " is " +
                                    (std::isnan(logits[token].item<float>()) ? "NaN" : "infinite") +
                                    ", so no token can be drawn\n  fix: weights from before training diverged, such "
                                    "as an older checkpoint of the run");
}

// Returns how many tokens are read again when the context is full.
int64_t later_half(int64_t context) { return (context + 1) / 2; }

runtime::OpListener listener_of(Communicator& world) {
  return world.size() > 1 ? peer_listener(world) : runtime::OpListener();
}

}  // namespace

void check_request(std::span<const int64_t> prompt, const models::GenerateOptions& options) {
  if (prompt.empty()) throw Error(Code::kBadConfig, "the prompt has no token\n  fix: --prompt with some text");
  if (!(options.temperature >= 0) || options.top_k < 0 || options.max_tokens < 0) {
    throw Error(Code::kBadConfig, "temperature " + std::to_string(options.temperature) + ", top_k " +
                                      std::to_string(options.top_k) + ", max_tokens " +
                                      std::to_string(options.max_tokens) + ": none may be negative");
  }
}

int64_t max_tokens_per_pass(int64_t prompt, int64_t max_tokens, int64_t context) {
  const int64_t first = std::clamp<int64_t>(prompt, 1, context);
  const bool fills = first + max_tokens - 1 > context;  // the last token that is added is not read
  return fills ? std::max(first, later_half(context)) : first;
}

Generation::Generation(const strategies::GenerationPrograms& programs, const models::Model& model,
                       runtime::FlatParameters& parameters, const runtime::AxisGroups& groups)
    : context_(model.context),
      bindings_(model.blocks, parameters, groups, {}, {.training = false, .inference = true}),
      prompt_(programs.prompt, bindings_.table(), listener_of(groups.world()), bindings_.lanes_of(programs.prompt)),
      token_(programs.token, bindings_.table(), listener_of(groups.world()), bindings_.lanes_of(programs.token)) {
  bindings_.allocate_caches(programs.prompt);
}

at::Tensor Generation::next_logits(std::span<const int64_t> tokens, int64_t past, int64_t number) {
  const at::Tensor ids_BT = at::tensor(at::IntArrayRef(tokens.data(), tokens.size()), at::kLong).unsqueeze(0);
  bindings_.begin_step({.micro_batches = {{.inputs_BT = ids_BT, .targets_BT = {}}}, .cached_tokens = past});
  runtime::Executor& pass = past == 0 ? prompt_ : token_;
  pass.run(number);
  pass.drain();
  return bindings_.find_tensor(program::logits(0)).view({-1});
}

std::vector<int64_t> Generation::run(std::span<const int64_t> prompt, const models::GenerateOptions& options) {
  check_request(prompt, options);
  std::vector<int64_t> text(prompt.begin(), prompt.end());
  std::span<const int64_t> unread =
      std::span<const int64_t>(text).last(std::min(text.size(), static_cast<size_t>(context_)));
  std::vector<int64_t> fresh;
  int64_t past = 0;
  while (static_cast<int64_t>(fresh.size()) < options.max_tokens) {
    if (past + static_cast<int64_t>(unread.size()) > context_) {
      past = 0;
      unread = std::span<const int64_t>(text).last(static_cast<size_t>(later_half(context_)));
    }
    const auto number = static_cast<int64_t>(fresh.size());
    const at::Tensor logits = next_logits(unread, past, number);
    check_logits(logits, number);
    past += static_cast<int64_t>(unread.size());
    const double u = models::uniform_for_token(options.seed, static_cast<uint64_t>(number));
    fresh.push_back(models::pick_token(logits, options, u));
    text.push_back(fresh.back());
    unread = std::span<const int64_t>(text).last(1);
    if (options.on_token && !options.on_token(fresh.back())) break;
  }
  return fresh;
}

}  // namespace herd::train
