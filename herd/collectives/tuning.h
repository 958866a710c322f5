// Defines measured choices that override the model. They say which algorithm was fastest at some sizes, for a
// collective, a placement of ranks and a kind of memory. `herd bench --tune FILE` measures and writes them;
// their grammar is in docs/formats/tuning.md. parse_tuning(to_text(t)) == t.   Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/request.h"

namespace herd {

// Says how ranks lie on hosts of one size: in blocks rank r is on host r / ranks, cyclically on host r % hosts.
struct RankPlacement {
  int hosts = 1;
  int ranks = 1;  // of each host
  bool cyclic = false;
  bool operator==(const RankPlacement&) const = default;
};

// Returns nothing for hosts of several sizes, for another order, and where more than hosts divides the ranks (switches,
// a torus).
std::optional<RankPlacement> placement_of(const CollectiveRequest& request);

std::string to_text(const RankPlacement& placement);  // returns "4", "2x2" or "2x2-cyclic"

struct TunedSize {
  Collective collective = Collective::kAllReduce;
  RankPlacement placement = {};
  bool symmetric = false;  // buffers were in symmetric memory; false wherever there are several hosts
  int64_t bytes = 0;       // of the whole message
  std::string algorithm = {};
  double us = 0;  // median time
  bool operator==(const TunedSize&) const = default;
};

struct Tuning {
  std::vector<TunedSize> sizes = {};
  std::string machine = {};  // rank 0's machine when it was measured, in one line; empty: it holds for every machine
  bool operator==(const Tuning&) const = default;
};

// Returns the fastest algorithm of the nearest measured size, by the ratio of sizes; of two equally near, the
// smaller. Returns nothing for uneven parts, where no size of the same collective, placement and memory was measured,
// or the nearest is more than 4 times off.
std::optional<TunedSize> find_tuned(const Tuning& tuning, const CollectiveRequest& request);

std::string to_text(const Tuning& tuning);
Tuning parse_tuning(std::string_view text);   // throws kCorruptFile with line and rule
Tuning read_tuning(const std::string& path);  // throws the same, and kBadConfig where there is no such file

}  // namespace herd
