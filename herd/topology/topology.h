// The machines of a job as far as predictions need them: hosts with cores, memory and an uplink, and which rank runs
// where. Rates are bytes per microsecond (1 GB/s = 1000). Threads: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/ids.h"

namespace herd {

struct Link {
  double latency_us = 0;
  double bytes_per_us = 0;
  bool operator==(const Link&) const = default;
};

// Rates count every byte a core reads or writes: a copy of S bytes moves 2 S.
struct Host {
  int ranks = 1;
  int cores = 1;
  double core_bytes_per_us = 8'000;          // one core, data in memory
  double memory_bytes_per_us = 13'000;       // all cores together, data in memory
  double cached_core_bytes_per_us = 40'000;  // the same while all that a collective touches fits the cache
  double cached_bytes_per_us = 84'000;
  int64_t cache_bytes = 32 << 20;  // last level, shared
  double peer_write_factor = 3;    // in cache, a byte stored to lines that a peer holds costs so many
  double signal_us = 0.3;          // until a peer sees a flag or a message
  double step_us = 0.05;           // what any step costs its rank's thread
  Link uplink = {15, 1'250};       // to the other hosts, each way: 10 Gbit/s
  bool operator==(const Host&) const = default;
};

struct Topology {
  std::string name;
  std::vector<Host> hosts;        // ranks are numbered host by host
  double spine_bytes_per_us = 0;  // all traffic between hosts together; 0 = no limit (a full spine)
  bool operator==(const Topology&) const = default;

  int num_ranks() const;
  int host_of(Rank rank) const;  // index in hosts. REQUIRES 0 <= rank < num_ranks()
};

// Throws kBadConfig, naming the rule, for a topology that can't be: no rank, a rate or a time below zero, ...
void check(const Topology& topology);

}  // namespace herd
