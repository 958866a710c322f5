#include "herd/topology/topology.h"

#include <cmath>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd {

int Topology::num_ranks() const {
  int ranks = 0;
  for (const Host& host : hosts) ranks += host.ranks;
  return ranks;
}

int Topology::host_of(Rank rank) const {
  int first = 0;
  for (int host = 0; host < static_cast<int>(hosts.size()); ++host) {
    first += hosts[host].ranks;
    if (rank < first) return host;
  }
  check_failed(__FILE__, __LINE__, "rank " + std::to_string(rank) + " of " + std::to_string(first));
}

void check(const Topology& topology) {
  const auto fail = [](size_t host, const std::string& rule) {
    throw Error(Code::kBadConfig, "topology, host " + std::to_string(host) + ": " + rule);
  };
  if (topology.hosts.empty()) throw Error(Code::kBadConfig, "a topology has at least one host");
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    const Host& h = topology.hosts[i];
    if (h.ranks < 1 || h.ranks > 1'000'000) fail(i, "1 <= ranks <= 1000000, but ranks = " + std::to_string(h.ranks));
    if (h.cores < 1 || h.cores > 1'000'000) fail(i, "1 <= cores <= 1000000, but cores = " + std::to_string(h.cores));
    if (h.cache_bytes < 0) fail(i, "cache_bytes >= 0, but cache_bytes = " + std::to_string(h.cache_bytes));
    for (const double rate : {h.core_bytes_per_us, h.memory_bytes_per_us, h.cached_core_bytes_per_us,
                              h.cached_bytes_per_us, h.uplink.bytes_per_us, h.peer_write_factor}) {
      if (!std::isfinite(rate) || rate <= 0) fail(i, "every rate and factor > 0, but one is " + std::to_string(rate));
    }
    for (const double time : {h.signal_us, h.step_us, h.uplink.latency_us}) {
      if (!std::isfinite(time) || time < 0) fail(i, "every time >= 0, but one is " + std::to_string(time));
    }
  }
  if (!std::isfinite(topology.spine_bytes_per_us) || topology.spine_bytes_per_us < 0) {
    throw Error(Code::kBadConfig, "topology: spine_bytes_per_us >= 0");
  }
}

}  // namespace herd
