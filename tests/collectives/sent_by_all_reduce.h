// What the equations of the all-reduce algorithms say that ranks send (n ranks, S message bytes): to be compared with
// schedules, and with what a transport has counted.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "herd/collectives/grid.h"
#include "herd/collectives/request.h"
#include "herd/collectives/staging.h"

namespace herd::testing_support {

struct SentBytes {
  int64_t all = 0;                    // by all ranks together
  std::optional<int64_t> each = {};   // by every rank, where all send the same
  int64_t most = each.value_or(all);  // by the rank that sends most, at most
};

// REQUIRES that n and its grid's axes divide S / 4, and that the algorithm serves the request. Ranks of one host stand
// on no grid.
inline SentBytes sent_by_all_reduce(std::string_view algorithm, const CollectiveRequest& request) {
  const int64_t n = request.num_ranks, S = request.bytes();
  const auto p = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
  const auto log = [](int64_t x) { return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(x - 1))); };
  const auto by_each = [n](int64_t bytes) { return SentBytes{n * bytes, bytes}; };
  const int64_t least = 2 * (n - 1) * S;  // by all: what no rank can do without
  if (algorithm == "naive") return by_each((n - 1) * S);
  if (algorithm == "staged") return request.bytes() <= kOneShotBytes ? by_each((n - 1) * S) : SentBytes{least};
  if (algorithm == "binomial_tree") return {.all = least, .most = log(n) * S};
  if (algorithm == "double_tree" || algorithm == "chain") return {.all = least, .most = 2 * S};
  if (algorithm == "recursive_doubling") {
    if (n == p) return by_each(log(n) * S);
    return {.all = p * log(p) * S + 2 * (n - p) * S, .most = (log(p) + 1) * S};
  }
  if (algorithm == "halving_doubling" && n != p) {
    int64_t doubled = 0;  // the longer half of n parts, of these the longer half, ..
    for (int64_t parts = n, ranks = p; ranks > 1; ranks /= 2) doubled += parts = (parts + 1) / 2;
    return {.all = least, .most = (n - 1) * S / n + doubled * S / n + S};
  }
  if (algorithm == "hierarchical_tree") return {.all = least, .most = least};
  if (algorithm == "mesh_2d") {
    const Grid grid(request);
    const int64_t a = grid.size(0), b = grid.size(1);
    return {.all = n / a * 2 * (a - 1) * S + n / b * 2 * (b - 1) * S, .most = 4 * S};
  }
  // ring, direct, halving and doubling, circulant, hierarchies and tori: 2(n-1)/n * S.
  return by_each(least / n);
}

}  // namespace herd::testing_support
