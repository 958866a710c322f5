#include "herd/topology/discover.h"

#include <hwloc.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace herd {
namespace {

// Where ranks outnumber cores, kTurnUs passes from one rank's turn on a core to the next one's, and each message takes
// kMessageUs of the cores.
constexpr double kTurnUs = 2, kMessageUs = 0.5;
constexpr double kFarTurnUs = 5;  // between hosts: the rank that has the core looks at the network meanwhile

}  // namespace

std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  return model + ", " + std::to_string(std::max(1u, std::thread::hardware_concurrency())) + " cores";
}

Host this_host(int ranks) {
  Host host;
  host.ranks = ranks;
  hwloc_topology_t machine;
  if (hwloc_topology_init(&machine) != 0) return host;
  if (hwloc_topology_load(machine) == 0) {
    host.cores = std::max(1, hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE));
    if (const hwloc_obj_t cache = hwloc_get_obj_by_type(machine, HWLOC_OBJ_L3CACHE, 0)) {
      host.cache_bytes = static_cast<int64_t>(cache->attr->cache.size);
    }
  }
  hwloc_topology_destroy(machine);
  return host;
}

Host with_turn_latencies(Host host) {
  if (host.ranks <= host.cores) return host;
  host.turn_us = kTurnUs;
  host.message_us = kMessageUs;
  host.uplink.latency_us += kFarTurnUs;
  host.uplink.message_us += kFarTurnUs;
  return host;
}

Topology assemble(const std::vector<int>& hosts, const Host& host, const Link& between) {
  std::vector<int> host_numbers, placement;  // numbers of hosts, in the order of first ranks
  for (const int at : hosts) {
    const auto found = std::find(host_numbers.begin(), host_numbers.end(), at);
    placement.push_back(static_cast<int>(found - host_numbers.begin()));
    if (found == host_numbers.end()) host_numbers.push_back(at);
  }
  const auto num_hosts = static_cast<int>(host_numbers.size());
  Topology topology;
  topology.hosts.assign(static_cast<size_t>(num_hosts), host);
  for (Host& assembled : topology.hosts) {
    assembled.ranks = 0;
    assembled.uplink = between;
  }
  for (const int at : placement) ++topology.hosts[static_cast<size_t>(at)].ranks;
  for (Host& assembled : topology.hosts) assembled = with_turn_latencies(assembled);
  if (!std::is_sorted(placement.begin(), placement.end())) topology.placement = placement;
  topology.name = num_hosts == 1 ? "one host, " + std::to_string(host.cores) + " cores"
                                 : std::to_string(num_hosts) + " hosts of " + std::to_string(host.cores) + " cores";
  check(topology);
  return topology;
}

}  // namespace herd
