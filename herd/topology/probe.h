// From what a job measured among its ranks to the topology it chooses algorithms on. Measured figures are rounded so
// coarsely that two runs on the same machines agree: choices, so bits, must not follow noise. Rank 0 rounds and tells
// the others. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/topology/topology.h"

namespace herd {

// The nearest (by ratio) of 1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8 times a power of ten (ISO 3, R 10): at most 13 %
// off; 0 for what is not above 0.
double rounded(double value);

// What a message of few bytes and one of many took from one rank to another, one way.
struct LinkProbe {
  double short_us = 0;
  double long_us = 0;
  int64_t long_bytes = 0;
};
Link link_of(const LinkProbe& probe);  // rounded. REQUIRES long_us > short_us

// "AMD EPYC, 2 cores": what a file of measured times is true of.
std::string machine_name();

// This machine's cores and last-level cache, by hwloc; rates are Host's defaults.
Host this_host(int ranks);

// `hosts` says where each rank runs, by any numbers; `host` what each of them is like (its
// ranks are counted here); `between` their uplinks.
Topology assemble(const std::vector<int>& hosts, const Host& host, const Link& between);

}  // namespace herd
