// Serves the job's store with one thread. Only holders of the token can connect (herd/net), so a stranger learns and
// changes nothing, and costs little. The log has a line for each stranger, at most one a second. The store lives in the
// launcher of node 0, or in rank 0's process under other launchers.
// Threads: any. REQUIRES that the process does not fork while a server exists; posix_spawn is fine.
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
StoreAddress parse_address(const std::string& rendezvous);  // reads "host:port" or "[::1]:port"; throws kBadConfig

class StoreServer {
 public:
  // Listens when this returns. Throws kBadConfig where the port is taken, with what holds it if that is known, or where
  // the host is no address of this machine. `clients` is the number of connections to expect, 0 = not known. Once all
  // are there, connections are accepted slowly, so that strangers cost next to nothing.
  StoreServer(const StoreAddress& address, const std::string& token, int clients = 0);
  ~StoreServer();

  const std::string& rendezvous() const;  // returns host:port to connect to

  // Each of these calls the function of the same name of StoreTable; `scope` is the attempt of the job (store_table.h).
  void fail(uint32_t scope, const Failure& failure);
  std::optional<std::string> value(uint32_t scope, const std::string& key) const;
  std::optional<Failure> failure(uint32_t scope) const;
  std::optional<Refusal> refusal(uint32_t scope) const;
  std::vector<ClientState> peers(uint32_t scope) const;
  // Waits until `done` is true for the peers of the scope, or the deadline passes; asks after each message and every 20
  // ms.
  bool wait_peers(uint32_t scope, const std::function<bool(const std::vector<ClientState>&)>& done,
                  SteadyTime deadline) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace herd::launch
