#include "herd/topology/presets.h"

#include <algorithm>

#include "herd/base/error.h"

namespace herd {

Topology one_host(int ranks, int cores) {
  Host host;
  host.ranks = ranks;
  host.cores = cores;
  Topology topology{"one host, " + std::to_string(cores) + " cores", {host}, 0};
  check(topology);
  return topology;
}

Topology spine_leaf(int num_hosts, const Host& host, double oversubscription) {
  if (num_hosts < 1 || oversubscription < 1) {
    throw Error(Code::kBadConfig,
                "spine-leaf needs hosts >= 1 and oversubscription >= 1, but hosts = " + std::to_string(num_hosts) +
                    ", oversubscription = " + std::to_string(oversubscription));
  }
  Topology topology{"spine-leaf, " + std::to_string(num_hosts) + " hosts of " + std::to_string(host.ranks),
                    std::vector<Host>(num_hosts, host), 0};
  if (oversubscription > 1) topology.spine_bytes_per_us = num_hosts * host.uplink.bytes_per_us / oversubscription;
  check(topology);
  return topology;
}

Topology first_ranks(const Topology& topology, int count) {
  if (count > topology.num_ranks()) {
    throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" has " + std::to_string(topology.num_ranks()) +
                                      " ranks, but " + std::to_string(count) + " are asked for\n  fix: --ranks " +
                                      std::to_string(topology.num_ranks()) + ", or more hosts in the file");
  }
  Topology cut = topology;
  cut.hosts.clear();
  for (Host host : topology.hosts) {
    host.ranks = std::min(host.ranks, count);
    count -= host.ranks;
    if (host.ranks > 0) cut.hosts.push_back(host);
  }
  return cut;
}

}  // namespace herd
