// Every shipped algorithm over the ranks and counts that tests use.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "herd/collectives/registry.h"

namespace herd::testing_support {

inline constexpr Collective kAllCollectives[] = {Collective::kAllReduce,     Collective::kAllGather,
                                                 Collective::kReduceScatter, Collective::kBroadcast,
                                                 Collective::kReduce,        Collective::kBarrier};

inline std::vector<AlgorithmInfo> every_algorithm() {
  std::vector<AlgorithmInfo> all;
  for (const Collective collective : kAllCollectives) {
    for (const AlgorithmInfo& info : algorithms(collective)) all.push_back(info);
  }
  return all;
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
         " elements=" + std::to_string(request.elements) + (request.in_place ? " in place" : "");
}

inline bool full_tests() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

}  // namespace herd::testing_support
