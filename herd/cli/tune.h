// herd bench OP --tune FILE measures every algorithm that serves the operation at each size, in two turns of which the
// faster counts. It writes the fastest into the file of docs/formats/tuning.md, where other operations, placements and
// sizes stay. It measures on this host, or among the ranks of its job where a launcher has started it; then rank 0
// writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/collectives/tuning.h"

namespace herd::cli {

struct TuneOptions {
  std::string op = "all_reduce";
  int ranks = 2;  // where no launcher says it
  std::vector<int64_t> bytes = {};
  bool symmetric = false;
  double seconds = 1;  // per algorithm and size
  std::string file = {};
};

int run_tune(const TuneOptions& options);  // exit status; throws herd::Error

// Returns `tuning` with `size` in place of what was known for the same collective, placement, memory and bytes.
Tuning with(Tuning tuning, const TunedSize& size);

}  // namespace herd::cli
