// Defines the options that `herd explain` and `herd show schedule` share: a collective, its size, the ranks and where
// they run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "herd/collectives/request.h"
#include "herd/topology/topology.h"

namespace CLI {
class App;
}

namespace herd::cli {

struct CollectiveOptions {
  std::string op = {};
  int ranks = 2;
  std::string bytes = "1MiB";
  std::string dtype = "fp32";
  int root = 0;
  bool out_of_place = false;
  bool ordinary_memory = false;
  std::string topology_file = {};  // or a preset's name; empty: this host
  std::string segment = {};        // "64KiB"; empty: by the message
};

void add_collective_options(CLI::App& app, CollectiveOptions& options);

// This host's memory is timed as a job does when it starts (some 4 ms; measure/memory_probe.h).
// Throw kBadConfig or kCorruptFile, naming the option or the line.
Topology topology_of(const CollectiveOptions& options);
// Throws where no algorithm of the operation has segments.
void check_segments(std::string_view op, int64_t segment_bytes);
CollectiveRequest request_of(const CollectiveOptions& options, const Topology& topology);

}  // namespace herd::cli
