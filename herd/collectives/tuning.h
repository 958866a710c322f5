// Measured choices, that override the model: for a collective, a placement of its ranks and a kind of memory, which
// algorithm was fastest at some sizes, on hosts of one kind. `herd bench --tune FILE` measures and writes them; grammar
// in docs/formats/tuning.md. parse_tuning(to_text(t)) == t.   Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/request.h"

namespace herd {

// Ranks on hosts of one size. In blocks rank r is on host r / ranks, cyclically on host r % hosts.
struct RankPlacement {
  int hosts = 1;
  int ranks = 1;  // of each host
  bool cyclic = false;
  bool operator==(const RankPlacement&) const = default;
};

// Nothing for hosts of several sizes, another order, and where more than hosts divides the ranks (switches, a torus).
std::optional<RankPlacement> placement_of(const CollectiveRequest& request);

std::string to_text(const RankPlacement& placement);  // "4", "2x2", "2x2-cyclic"

struct TunedSize {
  Collective collective = Collective::kAllReduce;
  RankPlacement placement = {};
  bool symmetric = false;  // buffers in symmetric memory; of several hosts always false
  int64_t bytes = 0;       // of the whole message
  std::string algorithm = {};
  double us = 0;  // what it took
  bool operator==(const TunedSize&) const = default;
};

struct Tuning {
  std::vector<TunedSize> sizes = {};
  std::string machine = {};  // rank 0's, where it was measured, one line; empty: not stated, it counts everywhere
  bool operator==(const Tuning&) const = default;
};

// The fastest algorithm of the nearest measured size, sizes being compared by their ratio; of two as near the smaller.
// Nothing for uneven parts, where no size of the same collective, placement and memory was measured, or where the
// nearest is more than 4 times off.
std::optional<TunedSize> tuned(const Tuning& tuning, const CollectiveRequest& request);

std::string to_text(const Tuning& tuning);
Tuning parse_tuning(std::string_view text);   // throws kCorruptFile naming line and rule
Tuning read_tuning(const std::string& path);  // and kBadConfig where there is no such file

}  // namespace herd
