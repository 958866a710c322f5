#include "herd/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "herd/base/error.h"
#include "herd/nn/key_value_cache.h"
#include "herd/nn/philox.h"
#include "herd/nn/run_block.h"

namespace herd::models {
namespace {

void check(std::span<const int64_t> prompt, const GenerateOptions& options) {
  if (prompt.empty()) throw Error(Code::kBadConfig, "the prompt has no token\n  fix: --prompt with some text");
  if (!(options.temperature >= 0) || options.top_k < 0 || options.max_tokens < 0) {
    throw Error(Code::kBadConfig, "temperature " + std::to_string(options.temperature) + ", top_k " +
                                      std::to_string(options.top_k) + ", max_tokens " +
                                      std::to_string(options.max_tokens) + ": none may be negative");
  }
}

// Logits of the token after `tokens`, which follow those in the cache.
at::Tensor next_logits(const Model& model, std::span<const int64_t> tokens, nn::KeyValueCache& cache) {
  nn::Context context;
  context.cache = &cache;
  nn::Tuple x = {at::tensor(at::IntArrayRef(tokens.data(), tokens.size()), at::kLong).unsqueeze(0)};
  for (size_t b = 0; b + 1 < model.blocks.size(); ++b) {
    context.layer = static_cast<int>(b);
    x = nn::run_without_graph(*model.blocks[b], x, context);
  }
  cache.advance(static_cast<int64_t>(tokens.size()));
  const at::Tensor last = x[0].slice(1, x[0].size(1) - 1);
  return nn::run_without_graph(*model.blocks.back(), {last}, context)[0]
      .view({-1})
      .to(at::kCPU, at::kFloat)
      .contiguous();
}

double uniform(uint64_t seed, uint64_t number) {
  return nn::philox({static_cast<uint32_t>(number), 0, 0, 0}, nn::philox_key(seed))[0] * 0x1p-32;
}

}  // namespace

int64_t pick_token(const at::Tensor& logits, const GenerateOptions& options, double u) {
  const float* values = logits.const_data_ptr<float>();
  const int64_t vocabulary = logits.numel();
  if (options.temperature == 0) return std::max_element(values, values + vocabulary) - values;
  std::vector<int64_t> order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](int64_t a, int64_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; };
  const int64_t kept = options.top_k == 0 ? vocabulary : std::min(options.top_k, vocabulary);
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), larger);
  std::vector<double> running(static_cast<size_t>(kept));
  double sum = 0;
  for (size_t i = 0; i < running.size(); ++i) {
    sum += std::exp((static_cast<double>(values[order[i]]) - values[order[0]]) / options.temperature);
    running[i] = sum;
  }
  const auto found = std::upper_bound(running.begin(), running.end(), u * sum) - running.begin();
  return order[std::min<size_t>(static_cast<size_t>(found), running.size() - 1)];
}

std::vector<int64_t> generate(const Model& model, std::span<const int64_t> prompt, const GenerateOptions& options) {
  check(prompt, options);
  nn::KeyValueCache cache(model.context);
  std::vector<int64_t> text(prompt.begin(), prompt.end());
  std::span<const int64_t> unread = std::span<const int64_t>(text).last(std::min<size_t>(text.size(), model.context));
  std::vector<int64_t> fresh;
  while (static_cast<int64_t>(fresh.size()) < options.max_tokens) {
    if (cache.length() + static_cast<int64_t>(unread.size()) > cache.capacity()) {
      cache.clear();
      unread = std::span<const int64_t>(text).last(static_cast<size_t>((model.context + 1) / 2));
    }
    fresh.push_back(pick_token(next_logits(model, unread, cache), options, uniform(options.seed, fresh.size())));
    text.push_back(fresh.back());
    unread = std::span<const int64_t>(text).last(1);
    if (options.on_token && !options.on_token(fresh.back())) break;
  }
  return fresh;
}

}  // namespace herd::models
