#include "herd/planner/collective_cost_model.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/collectives/choose.h"
#include "herd/program/program_names.h"

namespace herd::planner {
namespace {

// Bytes of the messages whose predicted times the lines of Timing::kFitLine go through.
constexpr int64_t kShortBytes = 64 << 10, kMiddleBytes = 4 << 20, kLongBytes = 64 << 20;

// Returns start and slope of the line through two points; never below zero.
std::pair<double, double> fit_line(int64_t a, double a_us, int64_t b, double b_us) {
  const double slope = std::max(0.0, b_us - a_us) / static_cast<double>(b - a);
  return {std::max(0.0, a_us - slope * static_cast<double>(a)), slope};
}

// Returns "4@2 3@1 ,0,5": size@stride of each factor, then the members. Axes of one shape have one price.
std::string shape_of(const Axis& axis) {
  std::string out;
  for (const Factor& factor : axis.factors)
    out += std::to_string(factor.size) + "@" + std::to_string(factor.stride) + " ";
  for (const int member : axis.members) out += "," + std::to_string(member);
  return out;
}

// Returns the bytes that one rank's core or device copies of a message of S bytes: S for a gather or a reduce-scatter,
// a broadcast or a reduce, 2 S for an all-reduce.
double copied_bytes(program::OpKind kind, int64_t bytes) {
  return (kind == program::OpKind::kAllReduce ? 2.0 : 1.0) * static_cast<double>(bytes);
}

}  // namespace

Topology group_topology(const Topology& topology, const Mesh& mesh, int axis) {
  Topology group{topology.name, {}, topology.spine_bytes_per_us};
  size_t at = 0;
  int first = 0;  // first rank of hosts[at]
  double rank_share = 1;
  int previous_host = -1;
  for (const int rank : mesh.ranks(axis, 0)) {
    while (rank >= first + topology.hosts[at].ranks) first += topology.hosts[at++].ranks;
    if (previous_host != static_cast<int>(at)) {
      group.hosts.push_back(topology.hosts[at]);
      group.hosts.back().ranks = 0;
      previous_host = static_cast<int>(at);
    }
    ++group.hosts.back().ranks;
    rank_share = static_cast<double>(group.hosts.back().ranks) / topology.hosts[at].ranks;
    Host& host = group.hosts.back();
    host.cores = host.ranks;
    host.memory_bytes_per_us = host.core_bytes_per_us * host.ranks;
    host.cached_bytes_per_us = host.cached_core_bytes_per_us * host.ranks;
    const Link& whole = topology.hosts[at].uplink;
    host.uplink.bytes_per_us = whole.bytes_per_us * rank_share;
    host.uplink.burst_bytes = whole.burst_bytes * rank_share;
    host.uplink.burst_bytes_per_us = whole.burst_bytes_per_us * rank_share;
  }
  group.spine_bytes_per_us *= rank_share;  // hosts of a group are taken to have equal shares of their ranks in it
  return group;
}

double CollectiveCostModel::chosen_us(program::OpKind kind, int64_t bytes, const Topology& group) const {
  CollectiveRequest request;
  // A reduce-scatter moves as many bytes as an all-gather, in as many messages.
  request.collective = kind == program::OpKind::kAllReduce   ? Collective::kAllReduce
                       : kind == program::OpKind::kAllToAll  ? Collective::kAllToAll
                       : kind == program::OpKind::kBroadcast ? Collective::kBroadcast
                       : kind == program::OpKind::kReduce    ? Collective::kReduce
                                                             : Collective::kAllGather;
  request.num_ranks = group.num_ranks();
  request.elements = std::max<int64_t>(1, bytes / size_of(dtype_));
  request.dtype = dtype_;
  request.in_place = request.collective == Collective::kAllReduce || request.collective == Collective::kBroadcast ||
                     request.collective == Collective::kReduce;
  request.same_host = request.direct = group.hosts.size() == 1;
  for (int host = 0; host < static_cast<int>(group.hosts.size()); ++host)
    request.hosts.insert(request.hosts.end(), static_cast<size_t>(group.hosts[static_cast<size_t>(host)].ranks), host);
  return choose(request, group).candidates[0].us;
}

// Returns the price of a message. Both ends copy it, one after the other. Between hosts its latency is that of the
// link, with the time that the bytes take there.
program::CollectivePrice CollectiveCostModel::message_price(int64_t bytes, const Topology& group) const {
  const Host& host = group.hosts[0];
  const double size = static_cast<double>(bytes);
  program::CollectivePrice price{
      .latency_us = host.message_us, .work_us = 2 * size / host.core_bytes_per_us, .host_bytes = 2 * size};
  if (group.hosts.size() > 1) price.latency_us = host.uplink.latency_us + size / host.uplink.bytes_per_us;
  return price;
}

double CollectiveCostModel::fitted_us(program::OpKind kind, int64_t bytes, const Axis& axis,
                                      const Topology& group) const {
  LineCache& cache = shared_lines_ != nullptr ? *shared_lines_ : own_lines_;
  const std::string key = shape_of(axis) + std::string(program::op_name(kind));
  const auto [entry, inserted] = cache.try_emplace(key + " " + std::string(dtype_name(dtype_)));
  Line& line = entry->second;
  if (inserted) {
    const double short_us = chosen_us(kind, kShortBytes, group), middle_us = chosen_us(kind, kMiddleBytes, group),
                 long_us = chosen_us(kind, kLongBytes, group);
    std::tie(line.fixed_us, line.us_per_byte) = fit_line(kShortBytes, short_us, kMiddleBytes, middle_us);
    std::tie(line.long_fixed_us, line.long_us_per_byte) = fit_line(kMiddleBytes, middle_us, kLongBytes, long_us);
  }
  const double size = static_cast<double>(bytes);
  return bytes <= kMiddleBytes ? line.fixed_us + line.us_per_byte * size
                               : line.long_fixed_us + line.long_us_per_byte * size;
}

program::CollectivePrice CollectiveCostModel::price(program::OpKind kind, int64_t bytes, const Mesh& mesh,
                                                    int axis) const {
  if (mesh.size(axis) < 2 || bytes == 0) return {};
  const Axis& along = mesh.axes[static_cast<size_t>(axis)];
  const auto cached = known_prices_.find({kind, bytes, shape_of(along)});
  if (cached != known_prices_.end()) return cached->second;
  const Topology group = group_topology(topology_, mesh, axis);
  if (kind == program::OpKind::kSend || kind == program::OpKind::kReceive)
    return known_prices_[{kind, bytes, shape_of(along)}] = message_price(bytes, group);
  const double us = timing_ == Timing::kEachSize && bytes <= kLongBytes ? chosen_us(kind, bytes, group)
                                                                        : fitted_us(kind, bytes, along, group);
  const Host& host = group.hosts[0];
  program::CollectivePrice price;
  const double copy_us = copied_bytes(kind, bytes) / host.core_bytes_per_us;
  price.work_us = group.hosts.size() == 1 ? us : std::min(us, copy_us);
  price.latency_us = us - price.work_us;
  price.host_bytes = std::min(copied_bytes(kind, bytes), price.work_us * host.core_bytes_per_us);
  return known_prices_[{kind, bytes, shape_of(along)}] = price;
}

program::CollectivePrice CollectiveCostModel::price_served(int64_t bytes, int servers, const Mesh& mesh,
                                                           int axis) const {
  const std::vector<int> workers = mesh.ranks(axis, 0);
  const auto all = static_cast<double>(workers.size()), size = static_cast<double>(bytes);
  double busiest_us = 0, latency_us = 0;
  int first = 0;  // rank of the host
  for (const Host& host : topology_.hosts) {
    const int end = first + host.ranks;
    const auto here = static_cast<double>(
        std::ranges::count_if(workers, [&](int worker) { return worker >= first && worker < end; }));
    const double serve = std::max(0, std::min(end, mesh.world_size + servers) - std::max(first, mesh.world_size));
    const double sent = here * size * (servers - serve) / servers, got = serve * size / servers * (all - here);
    if (const double moved = std::max(sent, got); moved > 0) {
      busiest_us = std::max(busiest_us, moved / host.uplink.bytes_per_us);
      latency_us = std::max(latency_us, host.uplink.latency_us);
    }
    first = end;
  }
  const bool has_servers = first >= mesh.world_size + servers;
  if (bytes == 0) return {};
  if (busiest_us == 0 || !has_servers) {
    if (workers.size() == 1) return message_price(bytes, group_topology(topology_, mesh, axis));
    return CollectiveCost::price_served(bytes, servers, mesh, axis);
  }
  program::CollectivePrice price;
  price.work_us = std::min(busiest_us, size / topology_.hosts[0].core_bytes_per_us);
  price.latency_us = latency_us + busiest_us - price.work_us;
  price.host_bytes = std::min(size, price.work_us * topology_.hosts[0].core_bytes_per_us);
  return price;
}

CollectiveCostModel& CollectiveCostModel::set_host_rate(double bytes_per_us) {
  Topology hosts = topology_;
  for (Host& host : hosts.hosts) {
    host.core_bytes_per_us = host.cached_core_bytes_per_us = bytes_per_us;
    host.memory_bytes_per_us = host.cached_bytes_per_us = bytes_per_us * host.ranks;
  }
  on_host_ = std::make_unique<CollectiveCostModel>(std::move(hosts), dtype_, timing_);
  return *this;
}

program::CollectivePrice CollectiveCostModel::price_on_host(program::OpKind kind, int64_t bytes, const Mesh& mesh,
                                                            int axis) const {
  return on_host_ != nullptr ? on_host_->price(kind, bytes, mesh, axis) : price(kind, bytes, mesh, axis);
}

}  // namespace herd::planner
