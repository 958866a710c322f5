// Lets rank 0 tell the ranks that only serve (strategy.dedicated_servers) when to start, to save and to end: they see
// no steps of their own. Each has a connection with rank 0, on which it waits for as long as the run lasts; it ends
// with rank 0's reason where that fails. Threads: one at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/comm/connection.h"
#include "herd/param_server/key_table.h"
#include "herd/param_server/parameter_server.h"
#include "herd/runtime/server_share.h"
#include "herd/spec/layout.h"

namespace herd::train {

struct ServerCommand {
  enum class Kind : int64_t { kStart, kAwaitLost, kSave, kEnd, kFail };
  Kind kind = Kind::kEnd;
  int64_t step = 0;        // kSave, and kEnd: steps that were done
  int64_t sample = 0;      // kSave: samples that were consumed
  int64_t updates = 0;     // kStart: of each weight so far
  int64_t lost = 0;        // kAwaitLost: ranks that are lost by now
  int64_t code = -1;       // kFail: of an error that all ranks have
  int64_t text_bytes = 0;  // kStart: of the servers' name, which follows
};

// The end of rank 0.
class ServerControl {
 public:
  // Connects to the last ranks of `world`. Collective with ServerCommands on these.
  ServerControl(const Communicator& world, const spec::Layout& layout);

  using Weights = std::function<std::span<const float>(int64_t key, int64_t first, int64_t count)>;
  // Starts the servers, with their shares of the weights.
  void start(const std::string& name, int64_t updates_before, const param_server::KeyTable& keys,
             const Weights& weights);
  // Returns once each server knows of so many lost ranks, and has taken all that they have sent.
  void await_lost(int64_t lost);
  void begin_save(int64_t step, int64_t sample);  // servers then take part in a save
  void await_saved();                             // returns once each has copied what it saves
  void end(int64_t steps_done);
  // Ends the servers with an error. One that all ranks have ends them in silence. Throws nothing.
  void fail(const std::exception& error) noexcept;

 private:
  void tell(ServerCommand command);
  void await_answers();

  std::vector<comm::Connection> servers_;
  bool ended_ = false;
};

// The end of a rank that only serves.
class ServerCommands {
 public:
  // Collective with ServerControl on rank 0.
  explicit ServerCommands(const Communicator& world);
  ServerCommand next();  // throws what ended rank 0
  void answer();         // that the last command is done
  std::string receive_text(int64_t bytes);
  void receive_weights(std::span<float> weights);
  void abort(const std::string& reason) noexcept;  // ends rank 0's calls with this reason

 private:
  comm::Connection root_;
};

// Starts the server of this rank with the weights that rank 0 sends. REQUIRES that the last command was kStart.
std::unique_ptr<ParameterServer> start_server(ServerCommands& commands, const ServerCommand& command,
                                              runtime::ServerShare& share, const Communicator& world);

}  // namespace herd::train
