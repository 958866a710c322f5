// Holds what a parameter server of a run keeps beside weights, for ops kPush and kPull: which keys and servers there
// are, and the optimizer's moments of this server's share of all elements, on the host. A key is a parameter group, or
// the part of one that an op works on. A rank that only pushes has the keys alone. Threads: one at a time; const
// methods from any.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/kernels/codec.h"
#include "herd/kernels/element_range.h"
#include "herd/optim/learning_rate.h"
#include "herd/param_server/key_table.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_options.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

struct ServedOptions {
  std::variant<kernels::SgdHyper, kernels::AdamWHyper> optimizer;
  int num_moments = 0;                               // of the optimizer
  int num_servers = 1;                               // the first ranks that push, or ranks of their own
  std::optional<kernels::CodecSettings> codec = {};  // in which gradients are pushed, where the step encodes
  // By group: elements that are pushed in fp32 all the same.
  std::map<int, std::vector<kernels::ElementRange>> exact = {};
  int staleness = 0;  // steps that a rank may be ahead of the slowest, or program::kNoBound; 0: rounds are summed
  optim::LearningRate rate;
  double rate_factor = 1;    // of the rate that each push states
  bool check_finite = true;  // true: a gradient with NaN or infinity is not pushed
  std::chrono::milliseconds deadline{60000};
};

class ServerShare {
 public:
  // Allocates the moments of the share of `rank`, zeros. `step` is that of a rank that pushes. Borrows `groups`'
  // groups. REQUIRES a step with pushes.
  ServerShare(const Groups& groups, const program::Program& step, const ServedOptions& options, Rank rank);

  // Names the ranks that serve: the first that push, or where the step has dedicated servers those after all others.
  const ServerLayout& layout() const { return layout_; }
  void set_name(std::string name) { layout_.name = std::move(name); }  // of this set of servers in the job
  bool is_dedicated() const { return dedicated_; }
  bool serves() const { return server_ >= 0; }  // this rank
  int num_servers() const { return static_cast<int>(layout_.servers.size()); }
  bool runs_ahead() const { return options_.staleness != 0; }

  const KeyTable& keys() const { return keys_; }
  int64_t key_of(int group, int part = 0) const { return first_keys_.at(group) + part; }
  bool has_group(int group) const { return first_keys_.contains(group); }
  int group_of(int64_t key) const { return parts_[static_cast<size_t>(key)].group; }
  // Elements of its group that the key names.
  kernels::ElementRange elements_of(int64_t key) const { return parts_[static_cast<size_t>(key)].elements; }
  const nn::ParameterGroup& group(int index) const { return *groups_[static_cast<size_t>(index)]; }

  int num_moments() const { return static_cast<int>(moments_.size()); }
  // Elements of the key's group that this rank's server updates for it, and moment k of these.
  kernels::ElementRange served(int64_t key) const;
  at::Tensor moment(int k, int64_t key) const;

  using FirstWeights = std::function<void(int64_t key, int64_t first, std::span<float> weights)>;
  // Starts the server of this rank, with the moments of now. REQUIRES serves(). This must outlive the server.
  std::unique_ptr<ParameterServer> start_server(const Communicator& world, int64_t updates_before,
                                                FirstWeights weights) const;
  // Counts the updates of each group since the servers started; `server` is that of this rank, or null. REQUIRES that
  // all ranks have done as many steps. A rank that was lost in a step has pushed some groups once more than others: the
  // most count. Throws kBug where servers differ by more. Collective over the ranks that serve, at least.
  int64_t updates(Communicator& comm, const ParameterServer* server) const;

 private:
  struct Part {
    int group = 0;
    kernels::ElementRange elements;
  };
  void add_keys(const program::Op& push, std::vector<Key>& keys);

  Groups groups_;
  ServedOptions options_;
  ServerLayout layout_;
  bool dedicated_ = false;
  int server_ = -1;                    // place of this rank among the servers; -1: none
  std::map<int, int64_t> first_keys_;  // by group
  std::vector<Part> parts_;            // by key
  KeyTable keys_;
  std::vector<int64_t> offsets_;     // by key: where its moments begin
  std::vector<at::Tensor> moments_;  // by k
};

}  // namespace herd::runtime
