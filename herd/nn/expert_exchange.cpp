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

HostExchange host_exchange(std::span<const int64_t> counts_PE, std::span<const int64_t> tokens_PH,
                           std::span<const int> hosts_P, int rank) {
  const size_t P = hosts_P.size(), E = counts_PE.size() / P, held = E / P, H = tokens_PH.size() / P;
  HERD_CHECK_EQ(held * P * P, counts_PE.size());
  std::vector<std::vector<int>> ranks_of_host(H);
  std::vector<size_t> places;  // by rank, among those of its host
  for (size_t r = 0; r < P; ++r) {
    std::vector<int>& ranks = ranks_of_host.at(static_cast<size_t>(hosts_P[r]));
    places.push_back(ranks.size());
    ranks.push_back(static_cast<int>(r));
  }
  const auto own_host = static_cast<size_t>(hosts_P[static_cast<size_t>(rank)]);
  HostExchange out{.neighbors = ranks_of_host[own_host]};
  for (size_t source = 0; source < P; ++source) {
    out.from.push_back(static_cast<int>(source));
    for (size_t host = 0; host < H; ++host) {
      if (host == static_cast<size_t>(hosts_P[source])) continue;
      const std::vector<int>& ranks = ranks_of_host[host];
      TokenParcel parcel{.source = static_cast<int>(source),
                         .relay = ranks.at(places[source] % ranks.size()),
                         .tokens = tokens_PH[source * H + host],
                         .ranks = ranks};
      for (const int target : ranks) {
        const auto of_rank = counts_PE.subspan(source * E + static_cast<size_t>(target) * held, held);
        parcel.rows.push_back(std::accumulate(of_rank.begin(), of_rank.end(), int64_t{0}));
      }
      if (host == own_host) out.from.back() = parcel.relay;
      if (parcel.relay == rank) out.relayed.push_back(parcel);
      if (parcel.source == rank) out.sent.push_back(std::move(parcel));
    }
  }
  return out;
}

}  // namespace herd::nn
