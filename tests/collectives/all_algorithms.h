// Every shipped algorithm over the ranks and counts that tests use.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "herd/collectives/registry.h"
#include "herd/schedule/meaning.h"

namespace herd::testing_support {

inline constexpr Collective kAllCollectives[] = {
    Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
    Collective::kBroadcast, Collective::kReduce,    Collective::kBarrier,
    Collective::kGather,    Collective::kScatter,   Collective::kAllToAll};

inline std::vector<AlgorithmInfo> every_algorithm() {
  std::vector<AlgorithmInfo> all;
  for (const Collective collective : kAllCollectives) {
    for (const AlgorithmInfo& info : algorithms(collective)) all.push_back(info);
  }
  return all;
}

// Can the algorithm serve the request, all memory being shared and symmetric?
inline bool serves(const AlgorithmInfo& info, CollectiveRequest request) {
  request.direct = request.same_host = true;
  const bool exchange_in_place = request.in_place && info.collective == Collective::kAllToAll;
  if (exchange_in_place && request.counts.empty() && request.elements % request.num_ranks != 0) return false;
  return why_not(info, request).empty();
}

// Uneven parts, some of them empty; elements set to what they make. For all_to_all alike in both directions, so that it
// may be in place.
inline CollectiveRequest uneven(CollectiveRequest request) {
  const int n = request.num_ranks;
  if (request.collective != Collective::kAllToAll) {
    for (Rank rank = 0; rank < n; ++rank) request.counts.push_back((rank * 5 + 3) % 7 == 0 ? 0 : (rank * 5 + 3) % 7);
  } else {
    for (Rank a = 0; a < n; ++a) {
      for (Rank b = 0; b < n; ++b) request.counts.push_back((a + b + a * b) % 4);
    }
  }
  request.elements = elements_of_counts(request.collective, n, request.counts);
  return request;
}

inline std::vector<Schedule> build_all_ranks(std::string_view algorithm, CollectiveRequest request) {
  request.direct = request.same_host = true;
  std::vector<Schedule> all;
  for (request.self = 0; request.self < request.num_ranks; ++request.self) {
    all.push_back(build_schedule(algorithm, request));
  }
  return all;
}

inline std::string title(const AlgorithmInfo& info, const CollectiveRequest& request) {
  return std::string(collective_name(info.collective)) + " " + std::string(info.name) +
         " n=" + std::to_string(request.num_ranks) + " root=" + std::to_string(request.root) +
         " elements=" + std::to_string(request.elements) + (request.counts.empty() ? "" : " uneven") +
         (request.in_place ? " in place" : "");
}

inline bool full_tests() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

}  // namespace herd::testing_support
