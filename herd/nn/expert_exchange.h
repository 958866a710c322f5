// Says which rows of a token and an expert go where, among P ranks of which each holds E/P neighbours of E experts. A
// rank's rows are sorted by expert, and by token within one, so those of one rank's experts lie together. Rows of all
// ranks come to the rank of their expert sorted by source; from there by expert they are in the order (expert, source,
// token), which does not depend on what arrives first. Where ranks are on several hosts, a token goes to each other
// host once, whatever experts there it has chosen: to one rank, which hands it on.   Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace herd::nn {

struct ExpertExchange {
  std::vector<int64_t> sent;      // by rank: rows that this rank sends to it
  std::vector<int64_t> received;  // by rank: rows that it gets from it
  std::vector<int64_t> experts;   // of each row that it gets, in their order: which of its own experts the row is for
  bool operator==(const ExpertExchange&) const = default;
};

// counts_PE[r * E + e] is how many rows rank r has for expert e. REQUIRES that `ranks` divides E.
ExpertExchange expert_exchange(std::span<const int64_t> counts_PE, int ranks, int rank);

// The tokens of one source that have experts on another host, each once.
struct TokenParcel {
  int source = 0, relay = 0;  // rank of the tokens, and the rank of that host that hands them on
  int64_t tokens = 0;
  std::vector<int> ranks = {};     // of that host, ascending
  std::vector<int64_t> rows = {};  // by these ranks: rows of the tokens and their experts
  bool operator==(const TokenParcel&) const = default;
};

struct HostExchange {
  std::vector<TokenParcel> sent = {};     // by this rank, ascending by host
  std::vector<TokenParcel> relayed = {};  // by this rank, ascending by source
  std::vector<int> from = {};             // by source: the rank from which this one gets the source's rows
  std::vector<int> neighbors = {};        // ranks of this rank's host, itself included, ascending
  bool operator==(const HostExchange&) const = default;
};

// Returns who sends what to whom, without counts, which it does not depend on. hosts_P has the host of each rank,
// counted from 0. Ranks of a host take turns as relays, by the place of the source among those of its own host.
HostExchange host_routes(std::span<const int> hosts_P, int rank);

// Returns these routes with counts. tokens_PH[r * H + h] is how many tokens of rank r have experts
// on host h; of a rank's own host it is not read. REQUIRES that as many ranks divide E.
HostExchange host_exchange(HostExchange routes, std::span<const int64_t> counts_PE, std::span<const int64_t> tokens_PH,
                           std::span<const int> hosts_P);

}  // namespace herd::nn
