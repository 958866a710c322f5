// Holds what a rank needs to train with parameter servers (param_server/parameter_server.h), for ops kPush and kPull:
// a client, and on the first ranks a server in a thread of its own, which updates this rank's share of all elements,
// unless ranks of their own serve. The values p<group> and s<group> of the Program are the server's memory, on the
// host. A device's gradients and weights are pushed from, and pulled into, the copies that the Program has on the host.
// Threads: push() and pull() from any, at once; abort() from any; the rest from one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/server_share.h"

namespace herd::runtime {

class ServedParameters {
 public:
  using Options = ServedOptions;
  // Allocates this rank's share of the moments, zeros. Borrows `parameters`. REQUIRES a step with pushes.
  ServedParameters(const FlatParameters& parameters, const program::Program& step, const Options& options);
  ~ServedParameters();  // leaves, and waits until the other workers have left, too

  // Starts the servers with the weights and moments of now. `updates_before` counts the steps so far. Collective over
  // `comm`, the ranks that push. `world` has dedicated servers, too: `meet`, if any, is called before ranks connect to
  // them, and starts them under this name.
  void start(Communicator& comm, const Communicator& world, int64_t updates_before,
             const std::function<void(const std::string& name)>& meet = {});
  void start(Communicator& comm, int64_t updates_before) { start(comm, comm, updates_before); }
  // Pushes a part of the group's gradient, as an op names it, and asks for the weights that come of it, which arrive in
  // the group's memory on the host from then on. Returns once the gradient's memory may be written to. Throws
  // kBadConfig for a gradient that is not finite. REQUIRES that nothing reads the group's weights until pull().
  void push(int group, int part, int64_t step);
  // The same of an encoded gradient: `messages`, or its bf16 form. REQUIRES check_gradient() before it is encoded.
  void push_encoded(int group, int64_t step, const PushMessages& messages);
  void push_bf16(int group, int64_t step);
  // Throws kBadConfig where gradients are checked and the group's is not finite.
  void check_gradient(int group, int64_t step) const;
  // Returns when the weights of the part have come. Throws as ServerClient, also what became of the push.
  void pull(int group, int part);
  void pull_all();  // to the device, too
  // Counts the workers that this rank's server has lost; the greatest number where it has no server.
  int64_t num_lost() const;
  // Tells whether ranks may be at different steps; each push is an update then.
  bool runs_ahead() const { return options_.staleness != 0; }
  // Tells the first server that this rank has done so many steps, and returns how far all are.
  JobProgress report(WorkerProgress progress);
  // Counts the updates of each group, those before start() included. As ServerShare::updates().
  int64_t updates(Communicator& comm) const;
  // Ends the training for all workers, since this rank ends it. Throws nothing.
  void abort(const std::string& reason) noexcept;

  const ServerShare& share() const { return share_; }  // of the server of this rank; empty where it has none
  const KeyTable& keys() const { return share_.keys(); }
  int64_t key_of(int group) const { return share_.key_of(group); }  // REQUIRES a group that is pushed as a whole
  bool serves() const { return share_.serves(); }
  int num_servers() const { return share_.num_servers(); }
  // Returns the weights of the key's elements [first, first + count).
  std::span<const float> weights_of(int64_t key, int64_t first, int64_t count) const;

 private:
  struct Calls {
    ServerCall push, pull;
  };
  PushOptions push_options(int64_t step) const;
  // Elements of the key in the memory of its group's weights or gradient.
  std::span<float> memory_of(int64_t key, const program::Value& value) const;  // on the host beside a device
  void check_finite(int64_t key, int64_t step) const;
  // Asks for the weights that come of a push. Returns once the gradient's memory may be written to.
  void pull_after(int64_t key, ServerCall push);
  void pull_key(int64_t key);

  const FlatParameters& parameters_;
  Options options_;
  ServerShare share_;
  program::Tier tier_;  // of what is pushed and pulled
  Rank rank_;           // of this one
  int64_t updates_before_ = 0;
  int64_t staleness_ = 0;                    // most of the pulls since the last report
  std::mutex mutex_;                         // guards staleness_
  std::unique_ptr<ParameterServer> server_;  // null where this rank does not serve
  std::unique_ptr<ServerClient> client_;
  std::vector<Calls> calls_;  // by key: those between push() and pull()
};

}  // namespace herd::runtime
