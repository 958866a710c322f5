// A ServerClient pushes gradients to the parameter servers of its job, and pulls weights. Calls that were started go on
// together, so that pushes and pulls fill both directions of a link:
//
//   for (key : keys) calls.push_back(client.start_push(key, gradient[key])), calls.push_back(client.start_pull(..));
//   for (call : calls) call.wait();
//
// A pull that is started right after the push of its key is answered as soon as weights are fresh enough.
// Threads: push() and start_push() by one, pull() and start_pull() by another; abort() by any; the rest by one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "herd/base/buffer.h"
#include "herd/comm/communicator.h"
#include "herd/comm/connection.h"
#include "herd/param_server/encoded_push.h"
#include "herd/param_server/key_table.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/progress.h"
#include "herd/param_server/server_options.h"

namespace herd::param_server {

class ServerState;
struct Request;

struct PushOptions {
  double rate =
      std::numeric_limits<double>::quiet_NaN();  // learning rate; NaN: the server's. The first push of a round counts
};

// What a pull brought, beside the weights.
struct Pulled {
  int64_t version = 0;    // the oldest of their pieces
  int64_t staleness = 0;  // how many rounds it was ahead of the slowest worker: so many of its pushes they may lack
};

// A push or a pull that was started. Its client must outlive it. It goes on while any thread of this rank waits for a
// call or an operation.   Threads: one at a time.
class ServerCall {
 public:
  ServerCall() = default;
  bool valid() const { return state_ != nullptr; }
  // Returns when the gradient may be written to, whether or not the servers have it. Throws nothing of theirs.
  void wait_sent();
  // Returns when the servers have the gradient, or when the weights have come. Throws as ServerClient::push() and
  // pull(). The gradient or the weights must stay where they are until then, or until the client is gone.
  Pulled wait();

 private:
  friend class ServerClient;
  struct State;
  std::shared_ptr<State> state_;
};

class ServerClient {
 public:
  // Connects to all servers. `local` is the server of this process, where the layout names one. Throws kBadConfig where
  // a server has another key table, or this rank is no worker; kPeerLost and kTimeout where one does not come.
  ServerClient(const comm::Communicator& world, const ServerLayout& layout, const KeyTable& keys,
               ParameterServer* local = nullptr);
  // Leaves, and the other workers go on without this one. During an exception this worker counts as lost.
  ~ServerClient();
  ServerClient(const ServerClient&) = delete;
  ServerClient& operator=(const ServerClient&) = delete;

  // Returns when the servers have the gradient. Throws kBadConfig for an unknown index, another number of elements, or
  // a worker that is beyond the bound; kPeerLost where a server or, without survival, a worker is lost. After a lost
  // server, some of its and other servers' pieces may have an update that others have not: restart from a checkpoint.
  void push(int64_t index, std::span<const float> gradient, PushOptions options = {});
  // Pushes the gradient of some rows; that of all others is zero. values[i * row_elements] begins the gradient of row
  // rows[i]; the same row twice adds.
  void push_rows(int64_t index, std::span<const int64_t> rows, std::span<const float> values, PushOptions options = {});
  // Waits until the weights are fresh enough (ServerOptions::staleness), and returns their version, the oldest of their
  // pieces. Throws kTimeout with the workers that it waits for; else as push().
  int64_t pull(int64_t index, std::span<float> weights);
  // Return at once, and throw for what is wrong with the arguments only. A pull comes after all pushes of its key that
  // were started before it. REQUIRES that a pull of a key has come before the next one of it is started.
  [[nodiscard]] ServerCall start_push(int64_t index, std::span<const float> gradient, PushOptions options = {});
  [[nodiscard]] ServerCall start_pull(int64_t index, std::span<float> weights);
  // As start_push(), of an encoded gradient (encoded_push.h), which must stay where it is as the plain one must. Throws
  // kBadConfig for messages that the key does not take.
  [[nodiscard]] ServerCall start_push_encoded(int64_t index, const PushMessages& messages, PushOptions options = {});
  // Returns Pulled::staleness of the last pull().
  int64_t staleness() const { return staleness_; }
  // Tells the first server how far this worker is, and returns how far all are. Throws as push().
  JobProgress report(const WorkerProgress& progress);
  // How long a pull waits for other workers, and a call for an answer; 60 s at first.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  // Fails the calls of this worker, which counts as lost from then on, with kAborted and this reason. Threads: any.
  void abort(const std::string& reason);
  const KeyTable& keys() const { return keys_; }

 private:
  friend class ServerCall;
  struct Server;
  kernels::ElementRange piece(int64_t index, size_t server) const;
  void check_count(int64_t index, size_t given, int64_t expected, const char* what) const;
  ServerCall make_call(const char* name);
  void hello(Server& server);
  // Sends each server its part of a push, and then gives the server in this process its own.
  ServerCall send_push(Request request, const std::function<Buffer(size_t server)>& payload_of,
                       const std::function<void(ServerState&, size_t server)>& push_locally);

  KeyTable keys_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<size_t> order_;  // in which they are asked
  std::mutex mutex_;           // requests, and the payloads of pushes, go out in one order
  comm::TransferWait wait_;
  std::atomic<std::chrono::milliseconds> deadline_{std::chrono::milliseconds(60000)};
  int64_t staleness_ = 0;
  std::atomic<bool> aborted_{false};
  int exceptions_ = 0;  // in flight when this was made
};

}  // namespace herd::param_server

namespace herd {
using param_server::Pulled, param_server::PushOptions, param_server::ServerCall, param_server::ServerClient;
}  // namespace herd
