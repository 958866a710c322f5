#include "herd/comm/connect_world.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "herd/launch/store_client.h"
#include "herd/transport/cluster_transport.h"
#include "herd/transport/hosts.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/network_interface.h"
#include "herd/transport/process_courier.h"
#include "herd/transport/thread_courier.h"

namespace herd::comm {
namespace {

using transport::Courier;

std::unique_ptr<Courier> alone() {
  return std::make_unique<transport::ThreadCourier>(std::make_shared<transport::ThreadHub>(1), 0);
}

std::unique_ptr<transport::Transport> connect_hosts(const launch::Environment& environment, Store& store,
                                                    std::vector<int> host_of,
                                                    std::unique_ptr<transport::Exchange> exchange,
                                                    const std::string& prefix, SteadyTime deadline) {
  transport::ClusterOptions options;
  options.rank = environment.rank;
  options.host_of = std::move(host_of);
  options.secret = launch::job_secret(store);
  options.job = environment.job_id + "/" + std::to_string(environment.restart);
  options.wire.interfaces = interfaces_between_hosts(environment);
  options.wire.transports = environment.ucx_transports;
  const int host = options.host_of[static_cast<size_t>(environment.rank)];
  options.courier = [&](const std::vector<Rank>& ranks, SteadyTime until) -> std::unique_ptr<Courier> {
    if (ranks.size() == 1) return alone();
    const auto self = static_cast<Rank>(std::find(ranks.begin(), ranks.end(), environment.rank) - ranks.begin());
    const std::string mesh = prefix + "mesh/" + std::to_string(host) + "/";
    auto sockets = transport::connect_mesh(store, mesh, self, static_cast<int>(ranks.size()), until, ranks);
    return std::make_unique<transport::ProcessCourier>(self, std::move(sockets), until, ranks);
  };
  return std::make_unique<transport::ClusterTransport>(std::move(options), std::move(exchange), deadline);
}

}  // namespace

std::string interfaces_between_hosts(const launch::Environment& environment) {
  if (!environment.network.empty()) return environment.network;
  const size_t colon = environment.rendezvous.rfind(':');
  if (colon == std::string::npos) return "lo";
  std::string host = environment.rendezvous.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return transport::interface_towards(host);
}

std::shared_ptr<transport::Transport> connect_world(const launch::Environment& environment, Store& store,
                                                    SteadyTime deadline) {
  if (environment.size == 1) return std::make_shared<transport::LocalTransport>(alone(), deadline);
  const std::string prefix = "transport/" + std::to_string(environment.restart) + "/";
  std::vector<Rank> everyone(static_cast<size_t>(environment.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  auto exchange = transport::store_exchange(store, prefix);
  std::vector<int> hosts(everyone.size(), 0);
  if (environment.transport == "ucx") {
    hosts = everyone;  // each rank alone: everything goes over the network, or its loopback
  } else if (environment.transport != "shm" && environment.num_nodes > 1) {
    hosts = transport::number_hosts(
        exchange->all_gather("host", everyone, environment.rank, transport::host_identity(), deadline));
  }
  if (std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; })) {
    auto sockets = transport::connect_mesh(store, prefix + "mesh/", environment.rank, environment.size, deadline);
    auto courier = std::make_unique<transport::ProcessCourier>(environment.rank, std::move(sockets), deadline);
    return std::make_shared<transport::LocalTransport>(std::move(courier), deadline);
  }
  return connect_hosts(environment, store, std::move(hosts), std::move(exchange), prefix, deadline);
}

}  // namespace herd::comm
