// Every shipped algorithm over the ranks and counts that tests use.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
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

// Several hosts, or a grid: what compositions want.
inline bool is_placed(const CollectiveRequest& request) { return !request.hosts.empty() || !request.grid.empty(); }

// Can the algorithm serve the request, all memory being shared and symmetric?
inline bool serves(const AlgorithmInfo& info, CollectiveRequest request) {
  if (!is_placed(request)) request.direct = request.same_host = true;
  const bool exchange_in_place = request.in_place && info.collective == Collective::kAllToAll;
  if (exchange_in_place && request.counts.empty() && request.elements % request.num_ranks != 0) return false;
  return why_not(info, request).empty();
}

// Uneven parts, some of them empty; elements set to what they make. For all_to_all alike in both directions, so that it
// may be in place.
inline CollectiveRequest uneven(CollectiveRequest request) {
  const int n = request.num_ranks;
  request.counts.clear();
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

// `ranks` of each host, placed block by block, or cyclically.
inline std::vector<int> hosts_of(int num_ranks, int num_hosts, bool cyclic = false) {
  std::vector<int> hosts;
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    hosts.push_back(cyclic ? rank % num_hosts : rank / (num_ranks / num_hosts));
  }
  return hosts;
}

// Hosts of different sizes: the first has about twice as many ranks as the others.
inline std::vector<int> uneven_hosts(int num_ranks, int num_hosts, bool cyclic = false) {
  std::vector<int> hosts;
  for (Rank rank = 0; rank < num_ranks; ++rank) hosts.push_back(rank % (num_hosts + 1) % num_hosts);
  if (!cyclic) std::sort(hosts.begin(), hosts.end());
  return hosts;
}

// Where the ranks of a world stand.
struct Placement {
  std::vector<int> hosts = {};  // by rank, numbered from 0 in the order of their first ranks; empty: all on one
  std::vector<int> grid = {};   // axes, as in CollectiveRequest
};

// Hosts of one size and of several, block by block and cyclically, and grids of two axes and more: all that
// compositions tell apart. Grids stand on hosts of several ranks, on hosts of one rank, and on one host.
inline std::vector<Placement> placements_of(int num_ranks) {
  std::vector<Placement> placements;
  std::vector<int> alone;
  for (Rank rank = 0; rank < num_ranks; ++rank) alone.push_back(rank);
  for (int hosts = 2; hosts < num_ranks; ++hosts) {
    for (const bool cyclic : {false, true}) {
      if (hosts <= 3) placements.push_back({uneven_hosts(num_ranks, hosts, cyclic)});
      if (num_ranks % hosts == 0) placements.push_back({hosts_of(num_ranks, hosts, cyclic)});
    }
    if (num_ranks % hosts != 0) continue;
    const int each = num_ranks / hosts;
    placements.push_back({alone, {each, hosts}});
    placements.push_back({{}, {each, hosts}});
    if (hosts % 2 != 0 || hosts == 2) continue;
    for (const bool cyclic : {false, true}) {
      placements.push_back({hosts_of(num_ranks, hosts, cyclic), {each, 2, hosts / 2}});
    }
    placements.push_back({alone, {each, hosts / 2, 2}});
    if (hosts > 4) placements.push_back({alone, {each, 2, hosts / 4, 2}});
  }
  return placements;
}

inline std::string describe(const Placement& placement) {
  std::string text;
  for (const int host : placement.hosts) text += (text.empty() ? "hosts " : ",") + std::to_string(host);
  if (placement.hosts.empty()) text += "one host";
  for (size_t i = 0; i < placement.grid.size(); ++i) {
    text += (i == 0 ? ", grid " : "x") + std::to_string(placement.grid[i]);
  }
  return text;
}

inline bool is_composition(std::string_view name) {
  return name.starts_with("hierarchical") || name.starts_with("torus") || name.starts_with("mesh");
}
inline bool is_composition(const AlgorithmInfo& info) { return is_composition(info.name); }

// A request of few ranks that the composition serves: two hosts, or a grid of two or three axes.
inline CollectiveRequest composition_request(const AlgorithmInfo& info) {
  CollectiveRequest request{.collective = info.collective, .num_ranks = 4, .elements = 12};
  if (info.name.starts_with("hierarchical")) {
    request.hosts = hosts_of(4, 2);
  } else if (info.name == "torus_3d") {
    request.num_ranks = 8;
    request.elements = 16;
    request.grid = {2, 2, 2};
  } else {
    request.grid = {2, 2};
  }
  return request;
}

inline std::vector<Schedule> build_all_ranks(std::string_view algorithm, CollectiveRequest request) {
  if (!is_placed(request)) request.direct = request.same_host = true;
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

// Few ranks, few elements, each of them with something to do: what every step of an algorithm can be tried on.
inline std::vector<CollectiveRequest> small_requests(const AlgorithmInfo& info, DType dtype, bool four_ranks) {
  std::vector<CollectiveRequest> requests;
  for (const bool in_place : {false, true}) {
    if (is_composition(info)) {
      requests.push_back(composition_request(info));
      requests.back().in_place = in_place;
      requests.back().dtype = dtype;
      continue;
    }
    for (const int n : {2, 3, 4}) {
      if (n > 3 && !four_ranks) continue;
      CollectiveRequest request{.collective = info.collective,
                                .num_ranks = n,
                                .root = n - 1,
                                .elements = 3 * n + 1,
                                .dtype = dtype,
                                .in_place = in_place};
      if (info.collective == Collective::kAllToAll && in_place) request.elements = 3 * n;
      requests.push_back(request);
      if (has_counts(info.collective) && n == 3) requests.push_back(uneven(request));
    }
  }
  std::erase_if(requests, [&](const CollectiveRequest& request) { return !serves(info, request); });
  return requests;
}

// So many elements that a staged algorithm takes several pieces; none of any other algorithm.
inline std::vector<CollectiveRequest> requests_of_several_pieces(const AlgorithmInfo& info) {
  std::vector<CollectiveRequest> requests;
  if (info.name != "staged") return requests;
  for (const bool in_place : {false, true}) {
    requests.push_back({.collective = info.collective,
                        .num_ranks = 2,
                        .elements = info.collective == Collective::kAllToAll ? 33000 : 33001,
                        .dtype = DType::kF64,
                        .in_place = in_place});
  }
  return requests;
}

inline bool full_tests() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

}  // namespace herd::testing_support
