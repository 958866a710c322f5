// The job's store: one thread, connections that only holders of the token can open (herd/net), so a stranger learns and
// changes nothing, and costs little; each is logged in one line (at most one a second) and the store goes on.
// Lives in the launcher of node 0, or in rank 0's process under other launchers.
// Threads: every method from any thread. No fork while one exists (posix_spawn is fine).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "herd/launch/store_table.h"

namespace herd::launch {

struct StoreAddress {
  std::string host = "127.0.0.1";
  int port = 0;  // 0 = any free one
};
StoreAddress parse_address(const std::string& rendezvous);  // "host:port", "[::1]:port"; throws kBadConfig

class StoreServer {
 public:
  // Listens when this returns. Throws kBadConfig where the port is taken (naming what holds it, if that is known) or
  // the host is no address of this machine.
  StoreServer(const StoreAddress& address, const std::string& token);
  ~StoreServer();

  const std::string& rendezvous() const;  // host:port to connect to
  void fail(uint32_t scope, const Failure& failure);
  std::optional<std::string> value(uint32_t scope, const std::string& key) const;
  std::optional<Failure> failure(uint32_t scope) const;
  std::vector<PeerState> peers(uint32_t scope) const;
  // Waits until `done` says so of the peers of the scope, or the deadline passes; asked after each message and 20 ms.
  bool wait_peers(uint32_t scope, const std::function<bool(const std::vector<PeerState>&)>& done,
                  SteadyTime deadline) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace herd::launch
