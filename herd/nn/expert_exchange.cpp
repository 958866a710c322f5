#include "herd/nn/expert_exchange.h"

#include <numeric>

#include "herd/base/check.h"

namespace herd::nn {

ExpertExchange expert_exchange(std::span<const int64_t> counts_PE, int ranks, int rank) {
  const auto P = static_cast<size_t>(ranks), E = counts_PE.size() / P, held = E / P, self = static_cast<size_t>(rank);
  HERD_CHECK_EQ(held * P * P, counts_PE.size());
  ExpertExchange out;
  for (size_t other = 0; other < P; ++other) {
    const auto to = counts_PE.subspan(self * E + other * held, held),
               from = counts_PE.subspan(other * E + self * held, held);
    out.sent.push_back(std::accumulate(to.begin(), to.end(), int64_t{0}));
    out.received.push_back(std::accumulate(from.begin(), from.end(), int64_t{0}));
    for (size_t e = 0; e < held; ++e)
      out.experts.insert(out.experts.end(), static_cast<size_t>(from[e]), static_cast<int64_t>(e));
  }
  return out;
}

}  // namespace herd::nn
