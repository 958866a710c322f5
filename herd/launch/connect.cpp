// connect_store: finds the store of this process's job under each launcher, or hosts it in rank 0.
#include "herd/base/error.h"
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
  const bool launcher_hosts = env.source == "herd run";
  if (env.size == 1 && !launcher_hosts) return std::make_unique<MemoryStore>();
  const SteadyTime deadline = Clock::now() + kConnectTimeout;
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

std::string job_secret(const Store& store, const Environment& environment) {
  if (const auto* client = dynamic_cast<const StoreClient*>(&store)) return client->secret();
  if (!environment.token.empty()) return derive_transport_key(environment.token);
  throw Error(Code::kBadConfig,
              "ranks that meet in a store of the program's own need a secret before they send each other anything\n"
              "  fix: HERD_TOKEN_FILE=PATH of a file with the output of openssl rand -hex 32, the same for all ranks");
}

}  // namespace herd::launch
