// Holds what the thread of a server shares with a worker in the same process, which calls it without messages.
// Threads: any.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/store.h"
#include "herd/comm/connection.h"
#include "herd/param_server/progress.h"
#include "herd/param_server/server_message_internal.h"
#include "herd/param_server/server_options.h"
#include "herd/param_server/server_table.h"

namespace herd::param_server {

class ServerState {
 public:
  ServerState(const comm::Communicator& world, ServerLayout layout, KeyTable keys, ServerOptions options);

  // Connects to the workers, and serves them until all have left.
  void serve();
  void stop(const std::string& reason);  // serve() returns soon; workers that are still there get kAborted

  // What the worker of this process calls. They throw as the functions of ServerClient do.
  void push(int64_t index, std::span<const float> gradient, double rate);
  void push_rows(int64_t index, std::span<const int64_t> rows, std::span<const float> values, double rate);
  void push_encoded(int64_t index, std::span<const std::byte> message, double rate);
  Snapshot pull(int64_t index, std::span<float> weights, SteadyTime deadline);
  JobProgress report(const WorkerProgress& progress);
  void leave(const std::string& lost);
  int64_t version(int64_t index);
  int64_t num_lost();

 private:
  struct Worker {
    std::optional<comm::Connection> connection;
    Request request;
    bool has_request = false;  // the request has come, its payload has not
    bool gone = true;
    Floats gradient;
    std::vector<std::byte> payload;  // rows, or an encoded gradient
    comm::Transfer last_answer;
    SteadyTime reads_until = SteadyTime::max();  // of one that is gone: when its last answer is given up
  };
  // A pull of a worker on another rank that is to be answered.
  struct WaitingPull {
    int worker = 0;
    int64_t number = 0;  // of the request
    SteadyTime deadline{};
  };

  // Pushes a gradient of the worker of this process, which `fill` writes.
  void push_locally(int64_t index, double rate, const std::function<void(Floats& gradient)>& fill);
  void connect(int worker);
  void take(int worker);  // handles what has come
  void begin(int worker);
  void expect_payload(int worker, int64_t bytes);
  void finish_push(int worker);
  void hello(int worker);
  void report(int worker);
  void next_request(int worker);
  void lose(int worker, const std::string& reason);
  void forget_pulls(int worker);
  // Answers go out while the server waits for requests. They reach no worker that is gone, as its next request tells.
  void answer(int worker, int64_t number, Answer part, const Buffer& buffer);
  void answer(int worker, int64_t number, const Reply& reply);
  void answer(int worker, int64_t number, const Error& error);
  // Keeps the connection of a worker that is gone until it has read its last answer, for a while at most. Nobody waits
  // for that, since the worker may be stopped.
  void let_read_last_answer(int worker);
  bool try_answer(int64_t index, const WaitingPull& pull);
  void answer_waiting(int64_t index);  // pulls that may go on, or have waited for too long; by the server's thread
  void answer_all_waiting();
  void after_local_call();  // lets the server's thread answer pulls that waited for this worker
  SteadyTime first_deadline() const;
  Error late(int worker, int64_t index) const;
  std::string name_of(int worker) const;
  void add_rows(int64_t index, std::span<const int64_t> rows, std::span<const float> values, const Floats& into);
  void check_rows(int64_t index, std::span<const int64_t> rows) const;

  comm::Communicator world_;
  ServerLayout layout_;
  int server_ = -1;        // index among the servers
  int local_worker_ = -1;  // index of the worker of this process; -1: none
  std::mutex mutex_;       // guards all below
  std::condition_variable changed_;
  ServerTable table_;
  ProgressTable progress_;
  std::vector<Worker> workers_;
  std::map<int64_t, std::vector<WaitingPull>> waiting_;  // by key; none of them empty
  bool called_locally_ = false;  // the worker of this process has called, for which pulls may wait
  // By worker: its request, or its payload; of one that is gone, its last answer. The thread of the server alone uses
  // them, since it waits for them without the lock.
  std::vector<comm::Transfer> incoming_;
  comm::TransferWait wait_;
  bool stopping_ = false;
};

// Returns the place of a rank in a list of ranks; -1 where it is not there.
int place_of(Rank rank, const std::vector<Rank>& ranks);
// Throws kBadConfig where a layout has no server or no worker, or a rank twice or outside the world.
void check_layout(const ServerLayout& layout, int num_ranks);
std::string connection_name(const ServerLayout& layout, int server, int worker);

}  // namespace herd::param_server
