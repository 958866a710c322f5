// A ParameterServer holds a share of the weights and their optimizer states, and updates them with the gradients that
// workers push. It runs in a thread of its process, which may be a worker's.
//
//   herd::ServerLayout layout = herd::colocated_servers(world.size(), 1);
//   herd::KeyTable keys{{.elements = 3}};
//   herd::ParameterServer server(world, layout, keys, {.optimizer = herd::kernels::SgdHyper{.rate = 0.1}});  // rank 0
//   herd::ServerClient client(world, layout, keys, &server);                                                // all
//   ranks client.push(0, gradient); client.pull(0, weights);
//
// Each worker and server have a connection that fails alone, through shared memory inside a host and the job's secure
// wire between hosts. A worker that dies is named to the others within a second (see ServerOptions). An update of a
// key's piece is done as a whole or not at all.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", OSDI; bounded staleness: Ho
// et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS.
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "herd/comm/communicator.h"
#include "herd/param_server/key_table.h"
#include "herd/param_server/server_options.h"

namespace herd::param_server {

class ServerState;

class ParameterServer {
 public:
  // Returns at once; a thread connects to the workers, which construct their ServerClients meanwhile. Throws kBadConfig
  // where this rank is no server of the layout.
  ParameterServer(const comm::Communicator& world, const ServerLayout& layout, const KeyTable& keys,
                  const ServerOptions& options = {});
  // Waits for the workers, as wait() does. During an exception it does not: those that are still there get kAborted.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Returns when all workers have left or are lost.
  void wait();
  // Fails the calls of all workers with kAborted and this reason; wait() then returns soon. Threads: any.
  void abort(const std::string& reason);
  // Counts the updates of a key so far.
  int64_t version(int64_t index) const;
  int64_t num_lost() const;  // workers that this server has lost so far

 private:
  friend class ServerClient;
  struct Thread;
  std::shared_ptr<ServerState> state_;
  std::unique_ptr<Thread> thread_;
  int exceptions_ = 0;  // in flight when this was made
};

}  // namespace herd::param_server

namespace herd {
using param_server::ParameterServer;
}  // namespace herd
