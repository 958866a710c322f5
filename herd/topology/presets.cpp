#include "herd/topology/presets.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <utility>

#include "herd/base/error.h"
#include "herd/topology/discover.h"

namespace herd {

Topology one_host(int ranks, int cores) {
  Host host;
  host.ranks = ranks;
  host.cores = cores;
  Topology topology{"one host, " + std::to_string(cores) + " cores", {with_turn_latencies(host)}, 0};
  check(topology);
  return topology;
}

namespace {

int64_t allowed_hosts(int64_t hosts) {
  if (hosts <= kMaxHosts) return hosts;
  throw Error(Code::kBadConfig, "a topology has at most " + std::to_string(kMaxHosts) + " hosts, not " +
                                    std::to_string(hosts) + "\n  fix: fewer, or smaller axes");
}

}  // namespace

Topology spine_leaf(int num_hosts, const Host& host, double oversubscription) {
  if (num_hosts < 1 || oversubscription < 1) {
    throw Error(Code::kBadConfig,
                "spine-leaf needs hosts >= 1 and oversubscription >= 1, but hosts = " + std::to_string(num_hosts) +
                    ", oversubscription = " + std::to_string(oversubscription));
  }
  allowed_hosts(num_hosts);
  Topology topology{"spine-leaf, " + std::to_string(num_hosts) + " hosts of " + std::to_string(host.ranks),
                    std::vector<Host>(num_hosts, host), 0};
  if (oversubscription > 1) topology.spine_bytes_per_us = num_hosts * host.uplink.bytes_per_us / oversubscription;
  check(topology);
  return topology;
}

Topology racks(int num_racks, int hosts_per_rack, const Host& host, double oversubscription, double rack_latency_us) {
  const int64_t hosts = allowed_hosts(int64_t{num_racks} * hosts_per_rack);
  Topology topology = spine_leaf(static_cast<int>(hosts), host);
  topology.name = std::to_string(num_racks) + " racks of " + std::to_string(hosts_per_rack) + " hosts of " +
                  std::to_string(host.ranks);
  topology.tiers = {{hosts_per_rack, {rack_latency_us, hosts_per_rack * host.uplink.bytes_per_us / oversubscription}}};
  check(topology);
  return topology;
}

namespace {

Topology grid_of_hosts(Fabric fabric, const std::vector<int>& axes, Host host) {
  Topology topology;
  host.ranks = 1;
  int64_t hosts = 1;
  for (const int size : axes) {
    if (size < 1)
      throw Error(Code::kBadConfig, "an axis has size >= 1, but one has " + std::to_string(size) + "\n  fix: 1");
    hosts = allowed_hosts(hosts * size);
    topology.name += (topology.name.empty() ? "" : " x ") + std::to_string(size);
  }
  topology.name += fabric == Fabric::kTorus ? " torus" : " mesh";
  topology.hosts.assign(static_cast<size_t>(hosts), host);
  topology.fabric = fabric;
  topology.axes = axes;
  check(topology);
  return topology;
}

}  // namespace

Topology torus_network(const std::vector<int>& axes, const Host& host) {
  return grid_of_hosts(Fabric::kTorus, axes, host);
}
Topology mesh_network(const std::vector<int>& axes, const Host& host) {
  return grid_of_hosts(Fabric::kMesh, axes, host);
}

std::optional<Topology> preset(std::string_view name) {
  constexpr int kMaxSize = 65536;
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(0, colon);
  const size_t least = kind == "racks"   ? 3
                       : kind == "hosts" ? 2
                                         : 1,
               most = kind == "racks" || kind == "hosts" ? least : 8;
  if (kind != "torus" && kind != "mesh" && kind != "hosts" && kind != "racks") return std::nullopt;
  std::vector<int> sizes;
  for (const char *at = name.data() + colon + 1, *end = name.data() + name.size(); at < end; ++at) {
    int size = 0;
    const auto [next, problem] = std::from_chars(at, end, size);
    if (problem != std::errc{} || size < 1 || size > kMaxSize || (next < end && *next != 'x')) sizes.resize(most + 1);
    sizes.push_back(size);
    at = next;
  }
  if (sizes.size() < least || sizes.size() > most || name.back() == 'x') {
    throw Error(Code::kBadConfig, "\"" + std::string(name) + "\": " + std::string(kind) + " takes " +
                                      (least == most ? std::to_string(least) : "1 to " + std::to_string(most)) +
                                      " sizes in [1, " + std::to_string(kMaxSize) +
                                      "], with x between them\n  fix: torus:4x4, mesh:4x4, hosts:4x8 or racks:2x4x8");
  }
  Host host;
  host.ranks = host.cores = kind == "torus" || kind == "mesh" ? 1 : sizes.back();
  if (kind == "torus") return torus_network(sizes, host);
  if (kind == "mesh") return mesh_network(sizes, host);
  if (kind == "hosts") return spine_leaf(sizes[0], host);
  return racks(sizes[0], sizes[1], host);
}

Topology placed_cyclically(Topology topology) {
  const int ranks = topology.num_ranks(), hosts = static_cast<int>(topology.hosts.size());
  topology.placement.clear();
  for (Rank rank = 0; rank < ranks; ++rank) topology.placement.push_back(rank % hosts);
  topology.name += ", ranks placed cyclically";
  check(topology);
  return topology;
}

Topology first_ranks(const Topology& topology, int count) {
  if (count > topology.num_ranks()) {
    throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" has " + std::to_string(topology.num_ranks()) +
                                      " ranks, but " + std::to_string(count) + " are asked for\n  fix: --ranks " +
                                      std::to_string(topology.num_ranks()) + ", or more hosts in the file");
  }
  if (count == topology.num_ranks()) return topology;
  if (topology.fabric != Fabric::kSwitch || !topology.tiers.empty()) {
    throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" is a grid or has tiers, so all its " +
                                      std::to_string(topology.num_ranks()) + " ranks take part, not " +
                                      std::to_string(count) + "\n  fix: --ranks " +
                                      std::to_string(topology.num_ranks()));
  }
  std::vector<Rank> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return only_ranks(topology, ranks);
}

namespace {

// Returns the tiers that still hold among some hosts, which are given by their old numbers.
std::vector<Tier> tiers_among(const Topology& topology, const std::vector<int>& hosts) {
  std::vector<Tier> kept;
  std::vector<int> below = hosts;  // the groups of the tier below
  for (const Tier& tier : topology.tiers) {
    std::vector<int> groups, sizes;
    for (const int member : below) {
      if (groups.empty() || groups.back() != member / tier.size) {
        groups.push_back(member / tier.size);
        sizes.push_back(0);
      }
      ++sizes.back();
    }
    const bool equal = std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes[0]; });
    const bool contiguous = std::set<int>(groups.begin(), groups.end()).size() == groups.size();
    if (!equal || !contiguous || groups.size() == 1) break;
    kept.push_back({sizes[0], tier.uplink});
    below = std::move(groups);
  }
  return kept;
}

// Says whether one switch of some tier has all of these hosts below it, so that nothing passes above.
bool below_one_switch(const Topology& topology, const std::vector<int>& hosts) {
  int size = 1;
  for (const Tier& tier : topology.tiers) {
    size *= tier.size;
    if (std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host / size == hosts[0] / size; })) return true;
  }
  return false;
}

// Gives `cut` the part of the grid that these hosts are, if they are a box of it.
void keep_grid(const Topology& topology, const std::vector<int>& hosts, Topology& cut) {
  std::vector<int> axes, order = {0};  // order: the box's hosts as the grid numbers them
  bool rings = topology.fabric == Fabric::kTorus;
  int stride = 1;
  for (const int size : topology.axes) {
    std::set<int> coordinates;
    for (const int host : hosts) coordinates.insert(host / stride % size);
    const auto count = static_cast<int>(coordinates.size());
    const bool whole = count == size;
    if (*coordinates.rbegin() - *coordinates.begin() + 1 != count) return;
    std::vector<int> next_order;
    for (const int coordinate : coordinates) {
      for (const int host : order) next_order.push_back(host + coordinate * stride);
    }
    order = std::move(next_order);
    if (count > 1) axes.push_back(count);
    rings = rings && (whole || count == 1);
    stride *= size;
  }
  if (axes.empty() || order != hosts) return;
  cut.fabric = rings ? Fabric::kTorus : Fabric::kMesh;
  cut.axes = axes;
}

}  // namespace

Topology only_ranks(const Topology& topology, const std::vector<Rank>& ranks) {
  std::vector<Rank> all(static_cast<size_t>(topology.num_ranks()));
  std::iota(all.begin(), all.end(), 0);
  if (ranks == all) return topology;
  const std::vector<int> host_of = topology.host_of_ranks();
  Topology cut;
  cut.name = topology.name;
  cut.spine_bytes_per_us = topology.spine_bytes_per_us;
  std::vector<int> index(topology.hosts.size(), -1), hosts;  // hosts: the old number of each
  for (const Rank rank : ranks) {
    const auto host = static_cast<size_t>(host_of[static_cast<size_t>(rank)]);
    if (index[host] < 0) {
      index[host] = static_cast<int>(cut.hosts.size());
      hosts.push_back(static_cast<int>(host));
      cut.hosts.push_back(topology.hosts[host]);
      cut.hosts.back().ranks = 0;
    }
    ++cut.hosts[static_cast<size_t>(index[host])].ranks;
    cut.placement.push_back(index[host]);
  }
  if (std::is_sorted(cut.placement.begin(), cut.placement.end())) cut.placement.clear();
  cut.tiers = tiers_among(topology, hosts);
  if (below_one_switch(topology, hosts)) cut.spine_bytes_per_us = 0;
  if (topology.fabric != Fabric::kSwitch) keep_grid(topology, hosts, cut);
  return cut;
}

}  // namespace herd
