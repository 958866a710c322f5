#include "herd/topology/load_topology.h"

#include <map>
#include <optional>

#include "herd/base/error.h"
#include "herd/base/regular_file.h"
#include "herd/topology/presets.h"
#include "herd/topology/topology_text.h"

namespace herd {
namespace {

constexpr size_t kShownRanks = 64;
constexpr size_t kMostBytes = 64 << 20;  // 100,000 different hosts take 40 MB

// Returns a fix like "placement 0 0 1 1", which numbers the hosts in the order of their first ranks.
std::string fix_of_placement(const std::vector<int>& hosts) {
  std::map<int, int> numbers;
  std::string placement;
  for (const int host : hosts) {
    placement += " " + std::to_string(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  const std::string fix = "\n  fix: " + std::to_string(numbers.size()) + " hosts or more";
  return hosts.size() > kShownRanks ? fix : fix + ", and ranks where they run: placement" + placement;
}

}  // namespace

Topology load_topology(const std::string& name) {
  if (const auto known = preset(name)) return *known;
  const std::optional<std::string> text = read_regular_file(name, kMostBytes + 1);
  if (!text) {
    throw Error(Code::kBadConfig,
                name +
                    ": no regular file that can be read, nor a preset\n  fix: a file of docs/formats/topology.md, or "
                    "torus:4x4, mesh:4x4, hosts:4x8 or racks:2x4x8");
  }
  if (text->size() > kMostBytes) {
    throw Error(Code::kBadConfig, name + ": a topology has at most " + std::to_string(kMostBytes) +
                                      " B, but it has more\n  fix: fewer hosts and tiers");
  }
  try {
    return parse_topology(*text);
  } catch (const Error& error) {
    throw Error(error.code(), name + ": " + error.message());
  }
}

void check_topology_of_ranks(const Topology& topology, int num_ranks, const std::vector<int>& hosts) {
  if (topology.num_ranks() != num_ranks) {
    throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" has " + std::to_string(topology.num_ranks()) +
                                      " ranks, but the job has " + std::to_string(num_ranks) +
                                      "\n  fix: " + std::to_string(topology.num_ranks()) + " ranks, or a topology of " +
                                      std::to_string(num_ranks));
  }
  if (hosts.empty()) return;
  const std::vector<int> stated_hosts = topology.host_of_ranks();
  std::map<int, Rank> first;  // the first rank of each host of the topology
  for (Rank rank = 0; rank < num_ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const Rank first_rank = first.emplace(stated_hosts[at], rank).first->second;
    if (hosts[at] == hosts[static_cast<size_t>(first_rank)]) continue;
    throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" has ranks " + std::to_string(first_rank) +
                                      " and " + std::to_string(rank) + " on one host, but they run on two" +
                                      fix_of_placement(hosts));
  }
}

bool cuts_hosts(const Topology& topology, const std::vector<int>& hosts) {
  const std::vector<int> stated_hosts = topology.host_of_ranks();
  std::map<int, int> first_host;  // for each real host, the topology's host of its first rank
  for (size_t rank = 0; rank < stated_hosts.size(); ++rank) {
    const int host = hosts.empty() ? 0 : hosts[rank];
    if (first_host.emplace(host, stated_hosts[rank]).first->second != stated_hosts[rank]) return true;
  }
  return false;
}

}  // namespace herd
