// Defines what the store knows, without any socket: requests come in, answers go out. Each attempt of the job has a
// scope, so that a late message of killed ranks can't reach the ranks that replaced them.
//   Reserved keys: get "heartbeat/<rank>" answers with the age of that rank's last message in ms;
//   "status/<rank>" holds its last published status (launch/status.h).
// Threads: one at a time; the server calls it under its lock.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/store.h"
#include "herd/launch/store_protocol.h"

namespace herd::launch {

struct Failure {
  Code code = Code::kPeerLost;
  std::string reason;
};

// Describes one rank (or launcher) as the store sees it.
struct ClientState {
  int rank = 0, size = 0;
  std::string location;                             // "pid 123 on host"
  SteadyTime last_heard;                            // time of its last message
  SteadyTime status_since = {}, status_heard = {};  // times of the first and the last heartbeat with its present status
  bool left = false;                                // it said goodbye
  SteadyTime joined = {};                           // time of its hello
  std::optional<SteadyTime> disconnected = {};      // time at which its connection ended, until it has another one
};

// Describes a hello that the store refused.
struct Refusal {
  std::string rule;  // the rule that it breaks, as its sender was told
  SteadyTime time;
};

class StoreTable {
 public:
  struct Answer {
    std::string connection;  // connection that the answer goes to
    Message message;
  };
  // Returns the answers to one frame of one connection, in order. It drops a frame that breaks the grammar, or comes
  // before a hello, and tells why in `dropped`.
  std::vector<Answer> handle(const std::string& connection, std::string_view frame, SteadyTime now,
                             std::string* dropped = nullptr);
  // Notes that a connection has ended. Its client may come back with another connection of the same name.
  void disconnect(const std::string& connection, SteadyTime now);
  // Fails every waiting and later get of the scope whose key does not exist. The first failure stays.
  std::vector<Answer> fail(uint32_t scope, const Failure& failure);

  std::optional<std::string> value(uint32_t scope, const std::string& key) const;
  std::optional<Failure> failure(uint32_t scope) const;
  // Returns the scope's last refused hello; nothing where none was.
  std::optional<Refusal> refusal(uint32_t scope) const;
  std::vector<ClientState> peers(uint32_t scope) const;
  // Returns "here: 2 of 4 ranks; not here yet: 2, 3; left: 0; silent: 1 (3.2 s)".
  std::string summary(uint32_t scope, SteadyTime now) const;

 private:
  struct Waiter {
    std::string connection, key;
    uint64_t id;
  };
  struct Scope {
    std::map<std::string, std::string> values;
    std::vector<Waiter> waiters;
    std::map<std::string, ClientState> peers;  // by connection
    std::optional<Failure> failure;
    std::optional<Refusal> refusal;
  };
  // Returns why the hello is refused, "" where it is accepted; fills in `state`.
  std::string refuse_hello(const Scope& scope, const std::string& connection, const Message& hello, SteadyTime now,
                           ClientState& state) const;
  std::vector<Answer> hello(const std::string& connection, const Message& request, SteadyTime now);
  std::vector<Answer> set(uint32_t scope, const Message& request, const std::string& connection);
  std::optional<Answer> get(uint32_t scope, const Message& request, const std::string& connection, SteadyTime now);
  std::optional<Answer> add(uint32_t scope, const Message& request, const std::string& connection);

  std::map<uint32_t, Scope> scopes_;
};

}  // namespace herd::launch
