// Says which rows of a token and an expert go where, among P ranks of which each holds E/P neighbours of E experts. A
// rank's rows are sorted by expert, and by token within one, so those of one rank's experts lie together. Rows of all
// ranks come to the rank of their expert sorted by source; from there by expert they are in the order (expert, source,
// token), which does not depend on what arrives first.   Threads: pure.
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

}  // namespace herd::nn
