// connect_store: finds the store of this process's job under each launcher, or hosts it in rank 0.
#include <string_view>

#include "herd/base/error.h"
#include "herd/launch/address_internal.h"
#include "herd/launch/keys.h"
#include "herd/launch/local_meeting.h"
#include "herd/launch/store_client.h"
#include "herd/launch/store_server.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kConnectTimeout = 30s;  // time limit for the store to appear
constexpr auto kLeaveTimeout = 10s;    // time limit for the other ranks to leave before the store ends
constexpr auto kSilenceLimit = 2s;     // a rank that is silent for longer counts as gone

// Hosts the store in rank 0's process. It outlives rank 0's own client until every rank has left or is silent, or until
// 10 s have passed.
class StoreHost {
 public:
  StoreHost(const Environment& env, const StoreAddress& address, const std::string& token)
      : size_(static_cast<size_t>(env.size)),
        scope_(static_cast<uint32_t>(env.num_restarts)),
        server_(address, token, env.size) {
    if (env.rendezvous.empty()) {
      meeting_ = std::make_unique<LocalMeeting>(env.job_id, MeetingPoint{server_.rendezvous(), token});
    }
  }
  ~StoreHost() {
    const auto all_left = [this](const std::vector<ClientState>& peers) {
      size_t gone = 0;
      for (const ClientState& peer : peers) gone += peer.left || Clock::now() - peer.last_heard > kSilenceLimit;
      return gone == size_;
    };
    server_.wait_peers(scope_, all_left, Clock::now() + kLeaveTimeout);
  }
  const std::string& rendezvous() const { return server_.rendezvous(); }

 private:
  size_t size_;
  uint32_t scope_;
  StoreServer server_;
  std::unique_ptr<LocalMeeting> meeting_;
};

}  // namespace

std::unique_ptr<Store> connect_store(const Environment& env) {
  return connect_store(env, Clock::now() + kConnectTimeout);
}

std::unique_ptr<Store> connect_store(const Environment& env, SteadyTime deadline) {
  const bool launcher_hosts = env.source == "herd run";
  if (env.size == 1 && !launcher_hosts) return std::make_unique<MemoryStore>();
  const ClientIdentity identity{env.rank, env.size, static_cast<uint32_t>(env.num_restarts)};
  if (!launcher_hosts && env.rank == 0) {
    const bool meets_by_job_id = env.rendezvous.empty();
    const std::string token = meets_by_job_id ? make_token() : env.token;
    const StoreAddress address = meets_by_job_id ? StoreAddress{} : parse_address(env.rendezvous);
    auto host = std::make_shared<StoreHost>(env, address, token);
    return std::make_unique<StoreClient>(host->rendezvous(), token, identity, deadline, host);
  }
  MeetingPoint point{env.rendezvous, env.token};
  if (point.rendezvous.empty()) point = ask_local_meeting(env.job_id, deadline);
  return std::make_unique<StoreClient>(point.rendezvous, point.token, identity, deadline);
}

Environment numbered_environment(Environment settings, const std::string& init_method, int rank, int size) {
  static constexpr std::string_view kTcp = "tcp://";
  if (!init_method.starts_with(kTcp)) {
    throw Error(Code::kBadConfig, "init_method = \"" + init_method +
                                      "\" names no place where ranks meet\n  fix: \"tcp://HOST:PORT\", the address of "
                                      "rank 0; without init_method, create() asks the launcher's environment");
  }
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(Code::kBadConfig, "a world of " + std::to_string(size) + " ranks has no rank " + std::to_string(rank) +
                                      "\n  fix: 0 <= rank < world_size");
  }
  settings.rank = rank;
  settings.size = size;
  settings.source = "init_method";
  const std::string address = init_method.substr(kTcp.size());
  const StoreAddress parsed = parse_address(address);
  if (is_loopback(numeric_host(parsed)) && settings.token.empty()) {
    settings.rendezvous.clear();
    settings.job_id = "tcp-" + std::to_string(parsed.port);
    return settings;
  }
  settings.rendezvous = address;
  if (settings.token.empty()) {
    throw Error(
        Code::kBadConfig,
        "ranks that meet at " + init_method +
            " need a secret: whoever reaches that address could join them\n"
            "  fix: HERD_TOKEN_FILE=PATH of a file with the output of openssl rand -hex 32, the same for all ranks");
  }
  return settings;
}

std::string job_secret(const Store& store, const Environment& environment) {
  if (const auto* client = dynamic_cast<const StoreClient*>(&store)) return client->secret();
  if (!environment.token.empty()) return derive_transport_key(environment.token);
  throw Error(Code::kBadConfig,
              "ranks that meet in a store of the program's own need a secret before they send each other anything\n"
              "  fix: HERD_TOKEN_FILE=PATH of a file with the output of openssl rand -hex 32, the same for all ranks");
}

}  // namespace herd::launch
