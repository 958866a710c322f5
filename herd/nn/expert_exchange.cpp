#include "herd/nn/expert_exchange.h"

#include <algorithm>
#include <map>
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

HostExchange host_routes(std::span<const int> hosts_P, int rank) {
  std::map<int, std::vector<int>> ranks_of_host;
  std::vector<size_t> places;  // by rank, among those of its host
  for (int r = 0; r < static_cast<int>(hosts_P.size()); ++r) {
    std::vector<int>& ranks = ranks_of_host[hosts_P[static_cast<size_t>(r)]];
    places.push_back(ranks.size());
    ranks.push_back(r);
  }
  const int own_host = hosts_P[static_cast<size_t>(rank)];
  HostExchange out{.neighbors = ranks_of_host.at(own_host)};
  for (int source = 0; source < static_cast<int>(hosts_P.size()); ++source) {
    out.from.push_back(source);
    for (const auto& [host, ranks] : ranks_of_host) {
      if (host == hosts_P[static_cast<size_t>(source)]) continue;
      const int relay = ranks[places[static_cast<size_t>(source)] % ranks.size()];
      const TokenParcel parcel{.source = source, .relay = relay, .ranks = ranks};
      if (host == own_host) out.from.back() = relay;
      if (relay == rank) out.relayed.push_back(parcel);
      if (source == rank) out.sent.push_back(parcel);
    }
  }
  return out;
}

HostExchange host_exchange(HostExchange routes, std::span<const int64_t> counts_PE, std::span<const int64_t> tokens_PH,
                           std::span<const int> hosts_P) {
  const size_t P = hosts_P.size(), E = counts_PE.size() / P, held = E / P, H = tokens_PH.size() / P;
  HERD_CHECK_EQ(held * P * P, counts_PE.size());
  const auto count = [&](TokenParcel& parcel) {
    const auto source = static_cast<size_t>(parcel.source);
    parcel.tokens = tokens_PH[source * H + static_cast<size_t>(hosts_P[static_cast<size_t>(parcel.relay)])];
    for (const int target : parcel.ranks) {
      const auto of_rank = counts_PE.subspan(source * E + static_cast<size_t>(target) * held, held);
      parcel.rows.push_back(std::accumulate(of_rank.begin(), of_rank.end(), int64_t{0}));
    }
  };
  std::ranges::for_each(routes.sent, count);
  std::ranges::for_each(routes.relayed, count);
  return routes;
}

}  // namespace herd::nn
