// Measured choices, that override the model: for a collective, a number of ranks on one host and a kind of memory,
// which algorithm was fastest at some sizes, on one machine. `herd bench --tune FILE` measures and writes them; grammar
// in docs/formats/tuning.md. parse_tuning(to_text(t)) == t.   Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/request.h"

namespace herd {

struct TunedSize {
  Collective collective = Collective::kAllReduce;
  int num_ranks = 1;
  bool symmetric = false;  // buffers in symmetric memory
  int64_t bytes = 0;       // of the whole message
  std::string algorithm = {};
  double us = 0;  // what it took
  bool operator==(const TunedSize&) const = default;
};

struct Tuning {
  std::vector<TunedSize> sizes = {};
  std::string machine = {};  // where it was measured, one line; empty: not stated, it counts everywhere
  bool operator==(const Tuning&) const = default;
};

// The fastest algorithm of the nearest measured size, sizes being compared by their ratio; of two as near the smaller.
// Nothing for several hosts, for uneven parts, where no size of the same collective, ranks and memory was measured, or
// where the nearest is more than 4 times off.
std::optional<TunedSize> tuned(const Tuning& tuning, const CollectiveRequest& request);

std::string to_text(const Tuning& tuning);
Tuning parse_tuning(std::string_view text);   // throws kCorruptFile naming line and rule
Tuning read_tuning(const std::string& path);  // and kBadConfig where there is no such file

}  // namespace herd
