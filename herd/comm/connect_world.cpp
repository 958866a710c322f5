#include "herd/comm/connect_world.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/launch/keys.h"
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

std::unique_ptr<Courier> courier_of_one() {
  return std::make_unique<transport::ThreadCourier>(std::make_shared<transport::ThreadHub>(1), 0);
}

// One rank asks for a wire between hosts by its settings, or by its devices for RDMA, which no stranger reaches.
constexpr const char *kTcp = "tcp", *kUcx = "ucx", *kRdma = "rdma";

// Throws kBadConfig where the settings ask for UCX on a network that may carry strangers.
std::string wanted_wire(const launch::Environment& environment) {
  if (environment.transport == kTcp) return kTcp;
  if (environment.trusted_network) return kUcx;
  if (transport::has_rdma() && !transport::ucx_version().empty()) return kRdma;
  if (environment.transport != kUcx) return kTcp;
  throw Error(
      Code::kBadConfig,
      "HERD_TRANSPORT=ucx neither encrypts nor authenticates, so it needs a network without strangers, but this "
      "host has no RDMA and HERD_TRUSTED_NETWORK is not 1\n  fix: HERD_TRANSPORT=tcp; or HERD_TRUSTED_NETWORK=1, "
      "where everybody who reaches this network, and every user of its hosts, may read and end the job");
}

std::string describe(const std::string& wire) {
  if (wire == kTcp) return "encrypted and authenticated: tcp inside TLS 1.3";
  return wire == kRdma ? "RDMA by ucx where all hosts have it, not encrypted"
                       : "ucx, neither encrypted nor authenticated: the network is declared trusted";
}

// Returns the same wire on all ranks: RDMA only if every rank has it. Throws if some ranks trust the network and some
// do not.
std::string agree_on_wire(const launch::Environment& environment, transport::Exchange& exchange, SteadyTime deadline) {
  std::vector<Rank> everyone(static_cast<size_t>(environment.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const std::string mine = wanted_wire(environment);
  const auto all = exchange.all_gather("network", everyone, environment.rank, mine, deadline);
  const auto rank_with = [&](const std::string& wire) { return std::find(all.begin(), all.end(), wire) - all.begin(); };
  const auto size = static_cast<std::ptrdiff_t>(all.size());
  if (std::count(all.begin(), all.end(), mine) == size) return mine;
  if (rank_with(kUcx) == size) return kTcp;
  const auto distrusting = std::find_if(all.begin(), all.end(), [](const std::string& wire) { return wire != kUcx; });
  throw Error(Code::kBadConfig, "rank " + std::to_string(rank_with(kUcx)) +
                                    " takes the network for a trusted one, rank " +
                                    std::to_string(distrusting - all.begin()) +
                                    " does not\n  fix: HERD_TRUSTED_NETWORK=1 for all ranks, or for none");
}

std::unique_ptr<transport::Transport> connect_hosts(const launch::Environment& environment, Store& store,
                                                    std::vector<int> host_of,
                                                    std::unique_ptr<transport::Exchange> exchange,
                                                    const std::string& prefix, SteadyTime deadline) {
  transport::ClusterOptions options;
  options.rank = environment.rank;
  options.host_of = std::move(host_of);
  options.secret = launch::job_secret(store, environment);
  options.job = environment.job_id + "/" + std::to_string(environment.num_restarts);
  const std::string wire = agree_on_wire(environment, *exchange, deadline);
  options.kind = wire == kTcp ? transport::WireKind::kTcp : transport::WireKind::kUcx;
  // A device for RDMA has a name of its own, unlike the interface through which the rendezvous is reached.
  options.wire.interfaces = wire == kRdma ? environment.network : interfaces_between_hosts(environment);
  // RDMA alone makes no other network a trusted one: UCX_TLS could name TCP.
  if (wire == kUcx) options.wire.transports = environment.ucx_transports;
  if (wire == kUcx && options.wire.interfaces.empty()) {  // UCX would listen on all of them
    throw Error(Code::kBadConfig, "no network interface of this host reaches the rendezvous " + environment.rendezvous +
                                      "\n  fix: HERD_NETWORK=NAME of the trusted one (herd doctor lists them)");
  }
  if (wire != kTcp && environment.rank == 0)
    log_warning("between hosts: " + describe(wire) + ", on " +
                (options.wire.interfaces.empty() ? "its devices" : options.wire.interfaces));
  const int host = options.host_of[static_cast<size_t>(environment.rank)];
  options.courier = [&](const std::vector<Rank>& ranks, SteadyTime until) -> std::unique_ptr<Courier> {
    if (ranks.size() == 1) return courier_of_one();
    const auto self = static_cast<Rank>(std::find(ranks.begin(), ranks.end(), environment.rank) - ranks.begin());
    const std::string mesh = prefix + "mesh/" + std::to_string(host) + "/";
    auto sockets = transport::connect_all_pairs(store, mesh, self, static_cast<int>(ranks.size()), until, ranks);
    return std::make_unique<transport::ProcessCourier>(self, std::move(sockets), until, ranks);
  };
  return std::make_unique<transport::ClusterTransport>(std::move(options), std::move(exchange), deadline);
}

}  // namespace

std::string interfaces_between_hosts(const launch::Environment& environment) {
  if (!environment.network.empty()) return environment.network;
  const size_t colon = environment.rendezvous.rfind(':');
  if (colon == std::string::npos && environment.source == "store" && environment.num_nodes > 1) {
    throw Error(Code::kBadConfig,
                "which network joins the " + std::to_string(environment.num_nodes) +
                    " hosts is not known, since HERD_NETWORK, HERD_RENDEZVOUS and MASTER_ADDR are not set\n"
                    "  fix: HERD_NETWORK=NAME of the interface between them (herd doctor lists them)");
  }
  if (colon == std::string::npos) return "lo";
  std::string host = environment.rendezvous.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return transport::interface_towards(host);
}

std::string wire_here(const launch::Environment& environment) { return describe(wanted_wire(environment)); }

launch::Environment meet_in_store(launch::Environment settings, Store& store, const StoreRank& self,
                                  SteadyTime deadline) {
  if (self.size < 1 || self.rank < 0 || self.rank >= self.size) {
    throw Error(Code::kBadConfig, "a world of " + std::to_string(self.size) + " ranks has no rank " +
                                      std::to_string(self.rank) + "\n  fix: 0 <= rank < size");
  }
  settings.rank = self.rank;
  settings.size = self.size;
  if (self.size == 1) return settings;
  std::vector<Rank> everyone(static_cast<size_t>(self.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto exchange = transport::store_exchange(store, "meet/");
  const std::string host = self.host.empty() ? transport::host_identity() : self.host;
  const auto hosts = transport::number_hosts(exchange->all_gather("host", everyone, self.rank, host, deadline));
  const auto tokens = exchange->all_gather("token", everyone, self.rank, settings.token.empty() ? "0" : "1", deadline);
  const auto without = std::find(tokens.begin(), tokens.end(), "0");
  settings.num_nodes = *std::max_element(hosts.begin(), hosts.end()) + 1;
  if (self.rank == 0) store.set("meet/job", launch::make_token());
  settings.job_id = store.get("meet/job", deadline);
  if (without == tokens.end()) return settings;
  if (settings.num_nodes > 1) {
    throw Error(
        Code::kBadConfig,
        "ranks on " + std::to_string(settings.num_nodes) + " hosts need the job's secret, but rank " +
            std::to_string(without - tokens.begin()) +
            " has neither HERD_TOKEN_FILE nor HERD_TOKEN: whoever reaches the store could read a secret in it\n"
            "  fix: HERD_TOKEN_FILE=PATH of a file with the output of openssl rand -hex 32, the same for all ranks");
  }
  if (self.rank == 0) store.set("meet/secret", launch::make_token());
  settings.token = store.get("meet/secret", deadline);
  return settings;
}

std::shared_ptr<transport::Transport> connect_world(const launch::Environment& environment, Store& store,
                                                    SteadyTime deadline) {
  if (environment.size == 1) return std::make_shared<transport::LocalTransport>(courier_of_one(), deadline);
  const std::string prefix = "transport/" + std::to_string(environment.num_restarts) + "/";
  std::vector<Rank> everyone(static_cast<size_t>(environment.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  auto exchange = transport::store_exchange(store, prefix);
  std::vector<int> hosts(everyone.size(), 0);
  if (environment.transport == kTcp || environment.transport == kUcx) {
    hosts = everyone;  // each rank is a host of its own: all data goes over the network, or its loopback
  } else if (environment.transport != "shm" && environment.num_nodes > 1) {
    hosts = transport::number_hosts(
        exchange->all_gather("host", everyone, environment.rank, transport::host_identity(), deadline));
  }
  if (std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; })) {
    auto sockets = transport::connect_all_pairs(store, prefix + "mesh/", environment.rank, environment.size, deadline);
    auto courier = std::make_unique<transport::ProcessCourier>(environment.rank, std::move(sockets), deadline);
    return std::make_shared<transport::LocalTransport>(std::move(courier), deadline);
  }
  return connect_hosts(environment, store, std::move(hosts), std::move(exchange), prefix, deadline);
}

}  // namespace herd::comm
