// Holds the experts that the tokens of a run were given, by their place in the whole run: the same in any layout. A run
// that is recorded fills it. A run that replays it chooses these experts in place of those of the largest scores, so
// that it trains as the recorded one, however its sums round. Padding has no place.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "herd/nn/token_cut.h"

namespace herd::nn {

// The tokens of a sample in one step and layer of the model; a step is counted from 0.
struct RoutedSample {
  int64_t step = 0;
  int layer = 0;
  int64_t sample = 0;
  auto operator<=>(const RoutedSample&) const = default;
};

struct SampleChoices {
  int64_t top_k = 1;
  std::vector<int32_t> experts = {};  // top_k of each token, the first choice first; -1 where it is not known
  bool operator==(const SampleChoices&) const = default;
};

class RecordedRouting {
 public:
  // Adds the choices of rows (N, k), dropped or not (router.h).
  void add(int64_t step, int layer, std::span<const TokenRow> rows, const at::Tensor& experts_Nk);
  // Adds what another rank knows of a sample. Throws kBadConfig for another top_k.
  void add(const RoutedSample& at, const SampleChoices& choices);
  // Returns the choices of rows (N, k) of E experts, none dropped; padding gets the first k. Throws kBadConfig where a
  // token has none, or others than a router could choose.
  at::Tensor choices(int64_t step, int layer, std::span<const TokenRow> rows, int64_t k, int64_t E) const;
  const std::map<RoutedSample, SampleChoices>& samples() const { return samples_; }
  void clear() { samples_.clear(); }

 private:
  std::map<RoutedSample, SampleChoices> samples_;
};

}  // namespace herd::nn
