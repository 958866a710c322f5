// From what a job measured among its ranks to the topology it chooses algorithms on. Measured figures are rounded so
// coarsely that two runs on the same machines agree: choices, so bits, must not follow noise. Rank 0 rounds and tells
// the others. Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// The nearest (by ratio) of 1, 1.5, 2, 3, 5, 7 times a power of ten; 0 for what is not above 0.
double rounded(double value);

// What a message of few bytes and one of many took from one rank to another, one way.
struct LinkProbe {
  double short_us = 0;
  double long_us = 0;
  int64_t long_bytes = 0;
};
Link link_of(const LinkProbe& probe);  // rounded. REQUIRES long_us > short_us

// This machine's cores and last-level cache, by hwloc; rates are Host's defaults.
Host this_host(int ranks);

// `hosts` says where each rank runs, by any numbers; `host` what each of them is like (its
// ranks are counted here); `between` their uplinks.
Topology assemble(const std::vector<int>& hosts, const Host& host, const Link& between);

}  // namespace herd
