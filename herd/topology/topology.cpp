#include "herd/topology/topology.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/units.h"

namespace herd {

int Topology::num_ranks() const {
  int ranks = 0;
  for (const Host& host : hosts) ranks += host.ranks;
  return ranks;
}

std::vector<int> Topology::host_of_ranks() const {
  if (!placement.empty()) return placement;
  std::vector<int> of_ranks;
  for (size_t host = 0; host < hosts.size(); ++host) {
    of_ranks.insert(of_ranks.end(), static_cast<size_t>(hosts[host].ranks), static_cast<int>(host));
  }
  return of_ranks;
}

int Topology::host_of(Rank rank) const {
  if (!placement.empty()) return placement[static_cast<size_t>(rank)];
  int first = 0;
  for (int host = 0; host < static_cast<int>(hosts.size()); ++host) {
    first += hosts[host].ranks;
    if (rank < first) return host;
  }
  check_failed(__FILE__, __LINE__, "rank " + std::to_string(rank) + " of " + std::to_string(first));
}

namespace {

// These bounds admit any real machine, from a byte a second up. Beyond them sums of times may be no finite number.
bool is_rate(double value) { return value >= 1e-6 && value <= 1e12; }
bool is_factor(double value) { return value >= 1e-6 && value <= kMaxFactor; }
bool is_rate_or_none(double value) { return value == 0 || is_rate(value); }
bool is_amount(double value) { return value >= 0 && value <= 1e12; }

int product(const std::vector<int>& factors) {
  int64_t all = 1;
  for (const int factor : factors) all = std::min<int64_t>(all * std::max(factor, 0), 1 << 30);
  return static_cast<int>(all);
}

void check_fabric(const Topology& t) {
  const auto fail = [](const std::string& rule) { throw Error(Code::kBadConfig, "topology: " + rule); };
  const std::string hosts = std::to_string(t.hosts.size());
  if (t.tiers.size() > kMaxTiers || t.axes.size() > kMaxTiers) {
    fail("at most " + std::to_string(kMaxTiers) + " tiers or axes, but there are " +
         std::to_string(std::max(t.tiers.size(), t.axes.size())));
  }
  if (t.fabric == Fabric::kSwitch && !t.axes.empty()) fail("only a torus or mesh has axes");
  if (t.fabric != Fabric::kSwitch) {
    if (product(t.axes) != static_cast<int>(t.hosts.size())) {
      fail("the axes of a torus or mesh multiply to its hosts, but they make " + std::to_string(product(t.axes)) +
           ", and there are " + hosts);
    }
    if (!t.tiers.empty()) fail("a torus or mesh has no tiers of switches");
  }
  int64_t group = 1;
  for (const Tier& tier : t.tiers) {
    if (tier.size < 1) fail("a tier has size >= 1, but one has " + std::to_string(tier.size));
    const double bytes_per_us = tier.uplink.bytes_per_us, latency_us = tier.uplink.latency_us;
    if (!is_rate(bytes_per_us)) {
      fail("1e-6 <= a tier's bytes_per_us <= 1e12, but one is " + format_number(bytes_per_us));
    }
    if (!is_amount(latency_us)) fail("0 <= a tier's latency_us <= 1e12, but one is " + format_number(latency_us));
    group *= tier.size;
    if (static_cast<int64_t>(t.hosts.size()) % group != 0) {
      fail("groups of " + std::to_string(group) + " hosts divide the hosts, but there are " + hosts);
    }
  }
  if (t.placement.empty()) return;
  std::vector<int> ranks(t.hosts.size(), 0);
  if (static_cast<int>(t.placement.size()) != t.num_ranks()) {
    fail("placement names a host for each of " + std::to_string(t.num_ranks()) + " ranks, but for " +
         std::to_string(t.placement.size()));
  }
  for (const int host : t.placement) {
    if (host < 0 || host >= static_cast<int>(t.hosts.size())) {
      fail("placement names hosts below " + hosts + ", but one is " + std::to_string(host));
    }
    ++ranks[static_cast<size_t>(host)];
  }
  for (size_t host = 0; host < ranks.size(); ++host) {
    if (ranks[host] == t.hosts[host].ranks) continue;
    fail("host " + std::to_string(host) + " has " + std::to_string(t.hosts[host].ranks) +
         " ranks, but placement puts " + std::to_string(ranks[host]) + " there");
  }
}

}  // namespace

int num_distances(const Topology& topology) { return 2 + static_cast<int>(topology.tiers.size()); }

int distance(const Topology& topology, int from, int to) {
  if (from == to) return 0;
  int grade = 1;
  for (const Tier& tier : topology.tiers) {
    from /= tier.size;
    to /= tier.size;
    if (from == to) return grade;
    ++grade;
  }
  return grade;
}

std::vector<Hop> route(const Topology& topology, int from, int to) {
  std::vector<Hop> hops;
  int stride = 1;
  for (size_t axis = 0; axis < topology.axes.size(); ++axis) {
    const int size = topology.axes[axis];
    int left = to / stride % size - from / stride % size;
    if (topology.fabric == Fabric::kTorus && 2 * left > size) left -= size;
    if (topology.fabric == Fabric::kTorus && 2 * left < -size) left += size;
    for (const int direction = left < 0 ? -1 : 1; left != 0; left -= direction) {
      hops.push_back({from, static_cast<int>(axis), direction});
      const int at = from / stride % size, next = (at + direction + size) % size;
      from += (next - at) * stride;
    }
    stride *= size;
  }
  return hops;
}

std::vector<int> grid_of(const Topology& topology) {
  for (const Host& host : topology.hosts) {
    if (host.ranks != topology.hosts[0].ranks) return {};
  }
  std::vector<int> grid;
  if (topology.hosts[0].ranks > 1) grid.push_back(topology.hosts[0].ranks);
  if (topology.fabric != Fabric::kSwitch) {
    grid.insert(grid.end(), topology.axes.begin(), topology.axes.end());
  } else {
    if (topology.tiers.empty()) return {};
    int groups = static_cast<int>(topology.hosts.size());
    for (const Tier& tier : topology.tiers) {
      grid.push_back(tier.size);
      groups /= tier.size;
    }
    grid.push_back(groups);
  }
  std::erase(grid, 1);
  return grid.size() < 2 ? std::vector<int>{} : grid;
}

double Link::carry_us(double bytes) const {
  if (burst_bytes <= 0) return bytes / bytes_per_us;
  // Takes the longest of three times: at the rate of a burst; at twice the link's rate, since the bucket fills in the
  // pause before; and with a full bucket, the rest at the link's rate.
  return std::max({bytes / burst_bytes_per_us, bytes / (2 * bytes_per_us), (bytes - burst_bytes) / bytes_per_us});
}

namespace {

// Checks the figures of a link, and the rules between them.
void check_uplink(const Link& link, const auto& fail) {
  if (link.message_us > link.latency_us) {
    fail("uplink_message_us is a part of uplink_latency_us, but " + format_number(link.message_us) + " > " +
         format_number(link.latency_us));
  }
  if (!is_rate_or_none(link.core_bytes_per_us)) {
    fail("1e-6 <= uplink_core_bytes_per_us <= 1e12, or 0, but it is " + format_number(link.core_bytes_per_us));
  }
  if (!is_amount(link.burst_bytes))
    fail("0 <= uplink_burst_bytes <= 1e12, but it is " + format_number(link.burst_bytes));
  if (!is_rate_or_none(link.burst_bytes_per_us)) {
    fail("1e-6 <= uplink_burst_bytes_per_us <= 1e12, or 0, but it is " + format_number(link.burst_bytes_per_us));
  }
  if (link.burst_bytes > 0 && link.burst_bytes_per_us < link.bytes_per_us) {
    fail("a burst passes at no less than uplink_bytes_per_us, but uplink_burst_bytes_per_us is " +
         format_number(link.burst_bytes_per_us) + " < " + format_number(link.bytes_per_us));
  }
}

}  // namespace

void check(const Topology& topology) {
  const auto fail = [](size_t host, const std::string& rule) {
    throw Error(Code::kBadConfig, "topology, host " + std::to_string(host) + ": " + rule);
  };
  if (topology.hosts.empty()) throw Error(Code::kBadConfig, "a topology has at least one host");
  int64_t ranks = 0;
  for (const Host& host : topology.hosts) ranks += std::max(host.ranks, 0);
  if (topology.hosts.size() > static_cast<size_t>(kMaxHosts) || ranks > kMaxRanks) {
    throw Error(Code::kBadConfig, "a topology has at most " + std::to_string(kMaxHosts) + " hosts and " +
                                      std::to_string(kMaxRanks) + " ranks, but there are " +
                                      std::to_string(topology.hosts.size()) + " and " + std::to_string(ranks));
  }
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    const Host& h = topology.hosts[i];
    if (h.ranks < 1 || h.ranks > 1'000'000) fail(i, "1 <= ranks <= 1000000, but ranks = " + std::to_string(h.ranks));
    if (h.cores < 1 || h.cores > 1'000'000) fail(i, "1 <= cores <= 1000000, but cores = " + std::to_string(h.cores));
    if (h.cache_bytes < 0) fail(i, "cache_bytes >= 0, but cache_bytes = " + std::to_string(h.cache_bytes));
    using Figures = std::initializer_list<std::pair<const char*, double>>;
    const auto check_all = [&](bool (*holds)(double), const char* rule, const Figures& figures) {
      for (const auto& [name, value] : figures) {
        if (!holds(value)) fail(i, std::string(rule) + ", but " + name + " is " + format_number(value));
      }
    };
    check_all(is_rate, "1e-6 <= every rate <= 1e12",
              {{"core_bytes_per_us", h.core_bytes_per_us},
               {"memory_bytes_per_us", h.memory_bytes_per_us},
               {"cached_core_bytes_per_us", h.cached_core_bytes_per_us},
               {"cached_bytes_per_us", h.cached_bytes_per_us},
               {"uplink_bytes_per_us", h.uplink.bytes_per_us}});
    check_all(is_factor, "1e-6 <= every factor <= 1e6",
              {{"peer_read_factor", h.peer_read_factor},
               {"peer_write_factor", h.peer_write_factor},
               {"shared_write_factor", h.shared_write_factor},
               {"stage_write_factor", h.stage_write_factor},
               {"stage_read_factor", h.stage_read_factor},
               {"message_factor", h.message_factor}});
    check_all(is_amount, "0 <= every time <= 1e12",
              {{"signal_us", h.signal_us},
               {"message_us", h.message_us},
               {"step_us", h.step_us},
               {"call_us", h.call_us},
               {"turn_us", h.turn_us},
               {"uplink_latency_us", h.uplink.latency_us},
               {"uplink_message_us", h.uplink.message_us}});
    check_uplink(h.uplink, [&](const std::string& rule) { fail(i, rule); });
  }
  check_fabric(topology);
  if (!is_rate_or_none(topology.spine_bytes_per_us)) {
    throw Error(Code::kBadConfig, "topology: 1e-6 <= spine_bytes_per_us <= 1e12, or 0 for no limit, but it is " +
                                      format_number(topology.spine_bytes_per_us));
  }
}

}  // namespace herd
