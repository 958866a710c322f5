// herd bench OP --tune FILE: measures every algorithm that serves the operation on this host at each size, in two turns
// of which the faster counts, and writes the fastest into the file of docs/formats/tuning.md, where other operations,
// ranks and sizes stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/collectives/tuning.h"

namespace herd::cli {

struct TuneOptions {
  std::string op = "all_reduce";
  int ranks = 2;
  std::vector<int64_t> bytes = {};
  bool symmetric = false;
  double seconds = 1;  // per algorithm and size
  std::string file = {};
};

int run_tune(const TuneOptions& options);  // exit status; throws herd::Error

// `tuning` with `size` in the place of what was known for the same collective, ranks, memory and bytes.
Tuning with(Tuning tuning, const TunedSize& size);

}  // namespace herd::cli
