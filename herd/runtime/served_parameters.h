// Holds what a rank needs to train with parameter servers (param_server/parameter_server.h), for ops kPush and kPull:
// a client, and on the first ranks a server in a thread of its own, which updates this rank's share of all elements.
// The values p<group> and s<group> of the Program are the server's memory, on the host. Threads: push() and pull() from
// any, at once; abort() from any; the rest from one.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/kernels/codec.h"
#include "herd/kernels/element_range.h"
#include "herd/optim/learning_rate.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

class ServedParameters {
 public:
  struct Options {
    std::variant<kernels::SgdHyper, kernels::AdamWHyper> optimizer;
    int num_moments = 0;                               // of the optimizer
    int num_servers = 1;                               // ranks that serve, the first of those that push
    std::optional<kernels::CodecSettings> codec = {};  // in which gradients are pushed, where the step encodes
    // By group: elements that are pushed in fp32 all the same.
    std::map<int, std::vector<kernels::ElementRange>> exact = {};
    int staleness = 0;  // steps that a rank may be ahead of the slowest, or program::kNoBound; 0: rounds are summed
    optim::LearningRate rate;
    double rate_factor = 1;    // of the rate that each push states
    bool check_finite = true;  // true: a gradient with NaN or infinity is not pushed
    std::chrono::milliseconds deadline{60000};
  };
  // Allocates this rank's share of the moments, zeros. Borrows `parameters`. REQUIRES a step with pushes.
  ServedParameters(const FlatParameters& parameters, const program::Program& step, const Options& options);
  ~ServedParameters();  // leaves, and waits until the other workers have left, too

  // Starts the servers with the weights and moments of now. `updates_before` counts the steps so far. Collective.
  void start(Communicator& comm, int64_t updates_before);
  // Pushes the group's gradient, and asks for the weights that come of it, which arrive in the group's memory from then
  // on. Returns once the gradient's memory may be written to. Throws kBadConfig for a gradient that is not finite.
  // REQUIRES that nothing reads the group's weights until pull().
  void push(int group, int64_t step);
  // The same of an encoded gradient: `messages`, or its bf16 form. REQUIRES check_gradient() before it is encoded.
  void push_encoded(int group, int64_t step, const PushMessages& messages);
  void push_bf16(int group, int64_t step);
  // Throws kBadConfig where gradients are checked and the group's is not finite.
  void check_gradient(int group, int64_t step) const;
  // Returns when the weights have come. Throws as ServerClient, also what became of the push.
  void pull(int group);
  void pull_all();
  // Counts the workers that this rank's server has lost; the greatest number where it has no server.
  int64_t num_lost() const;
  // Tells whether ranks may be at different steps; each push is an update then.
  bool runs_ahead() const { return options_.staleness != 0; }
  // Tells the first server that this rank has done so many steps, and returns how far all are.
  JobProgress report(WorkerProgress progress);
  // Counts the updates of each group, `updates_before` included. REQUIRES that all ranks have done as many steps. A
  // rank that was lost in a step has pushed some groups once more than others: the most count. Throws kBug where
  // servers differ by more. Collective over the ranks that serve, at least.
  int64_t updates(Communicator& comm) const;
  // Ends the training for all workers, since this rank ends it. Throws nothing.
  void abort(const std::string& reason) noexcept;

  std::vector<int> groups() const;
  const KeyTable& keys() const { return keys_; }
  int64_t key_of(int group) const { return keys_of_groups_.at(group); }
  bool serves() const { return rank_index_ < static_cast<int>(layout_.servers.size()); }
  int num_servers() const { return options_.num_servers; }  // the first ranks
  int num_moments() const { return static_cast<int>(moments_.size()); }
  // Elements of the group that this rank's server updates, and moment k of these. REQUIRES a group of groups().
  kernels::ElementRange served(int group) const;
  at::Tensor moment(int k, int group) const;

 private:
  struct Calls {
    ServerCall push, pull;
  };
  PushOptions push_options(int64_t step) const;
  // Asks for the weights that come of a push. Returns once the gradient's memory may be written to.
  void pull_after(int group, ServerCall push);

  const FlatParameters& parameters_;
  Options options_;
  ServerLayout layout_;
  std::map<int, int64_t> keys_of_groups_;
  std::vector<int> groups_of_keys_;
  KeyTable keys_;
  int64_t updates_before_ = 0;
  int64_t staleness_ = 0;                    // most of the pulls since the last report
  int rank_index_ = 0;                       // place among the workers; the first of them serve
  std::vector<int64_t> offsets_;             // by key: where its moments begin
  std::vector<at::Tensor> moments_;          // by k
  std::mutex mutex_;                         // guards staleness_
  std::unique_ptr<ParameterServer> server_;  // null where this rank does not serve
  std::unique_ptr<ServerClient> client_;
  std::vector<Calls> calls_;  // by key: those between push() and pull()
};

}  // namespace herd::runtime
