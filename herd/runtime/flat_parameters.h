// Holds the weights, gradients and optimizer states of a rank, each in flat memory, as the values of its Program lie:
//   whole     One region holds all groups of a kind, group after group, each beginning on a 64-byte line. So a bucket
//             of consecutive groups is one range of memory, and so is the model.
//   shard     A group that is cut over an axis of n ranks is padded to n * S elements; the rank with this index holds
//             elements [index * S, (index + 1) * S). They lie at their place in the whole where both share a slot, else
//             in a region of shards.
//   states    They are fp32 or bf16, for the part that this rank updates. With 16-bit weights they include what makes
//             the weights exact: an fp32 master copy for fp16, the lower halves for bf16, whose weights are the upper
//             halves of fp32 numbers (bridge/split_float.h). Frozen groups have no states and no gradients.
//   host      The host's own memory holds what a Program keeps there: states with a master copy, also for bf16, weights
//             that the update works on, and one staging buffer for each slot.
//   encoded   Gradients in bf16, as they are sent, are laid out like plain ones in a region of their own.
//   pooled    The whole of a group lies in the buffer of its slot, for as long as the Program keeps it.
// A rank that runs a part of the model holds the groups that its Program names, and no others. Where a rank has peers,
// what collectives send lies in memory that the ranks of a host share. Collectives then reduce it where backward writes
// it, and gather it from where the update leaves it. All padding is zero and stays so.
// Threads: one at a time, but for tensors that were handed out.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/communicator.h"
#include "herd/nn/parameter_group.h"
#include "herd/program/program.h"

namespace herd::runtime {

using Groups = std::vector<std::shared_ptr<nn::ParameterGroup>>;

// Holds elements [begin, begin + count) of a group.
struct Part {
  int64_t begin = 0, count = 0;
};

class FlatParameters {
 public:
  // Allocates the weights and gradients that `step` holds, and zeroed states of types `states` for each weight that
  // this rank updates. Weights get the groups' initial values for `seed`; without a seed the caller writes all of them.
  // Attaches groups that are whole for as long as the run. Collective where comm.size() > 1.
  FlatParameters(Groups groups, const program::Program& step, Communicator& comm,
                 const std::vector<at::ScalarType>& states, std::optional<uint64_t> seed);
  // Allocates all groups as wholes.
  FlatParameters(Groups groups, Communicator& comm, const std::vector<at::ScalarType>& states, uint64_t seed);
  ~FlatParameters();  // detaches
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  int num_groups() const { return static_cast<int>(groups_.size()); }
  nn::ParameterGroup& group(int index) const { return *groups_[static_cast<size_t>(index)]; }
  int index_of(const nn::ParameterGroup& group) const;  // throws kBug if it is none of ours

  // Returns the memory of a value, padding included; undefined if this rank holds none. A pooled value has its memory
  // only from its first write to its release.
  at::Tensor memory(const program::Value& value) const;
  // Returns the gradients of whole groups [first, last], one range with the padding between them.
  at::Tensor gradient_range(int first, int last, program::Codec codec) const;

  bool holds(int group) const;  // tells whether this rank holds the group's weights, whole or a shard
  bool sharded() const { return shards_ > 1; }
  // Returns the placement of groups that are cut; whole if none is.
  program::Placement shard_placement() const { return shard_placement_; }
  bool keeps_whole(int group) const;  // tells whether this rank holds the whole weights from step to step
  // Returns the part of a group that this rank updates. For a frozen group, which has weights alone, it is what this
  // rank holds: its shard, or all of it. This function and all below REQUIRE holds(group).
  Part part(int group) const;
  // Returns the part of part() that this rank saves: ranks that hold the same part share it like shards.
  Part saved_part(int group) const;
  // Return the memory of part(), with part(group).count elements.
  at::Tensor own_weights(int group) const;
  at::Tensor own_gradient(int group) const;
  at::Tensor own_state(int k, int group) const;
  // Return the memory in which the update works: own_weights and own_gradient, or their copies on the host.
  at::Tensor update_weights(int group) const;
  at::Tensor update_gradient(int group) const;
  // Return what makes 16-bit weights exact; undefined where weights have another type, or are frozen.
  at::Tensor own_master(int group) const;      // for fp16: the fp32 numbers that the weights are the rounding of
  at::Tensor own_low_halves(int group) const;  // for bf16: the lower halves of the fp32 numbers, as int16
  int num_states() const { return static_cast<int>(states_.size()); }

  // Copies the device's weights, which somebody else has written, to the weights that the host updates, if there are
  // such.
  void refresh_host(int group);

  // Let the group's tensors use the memory of its whole weights or gradient; do nothing where they do already.
  void attach(int group);
  void attach_gradient(int group);
  void detach(int group);  // takes the memory of pooled weights away from the group's tensors; else does nothing

  // Return whole regions, for measurements and hashes.
  const at::Tensor& weights() const { return weights_.memory; }
  const at::Tensor& gradients() const { return gradients_.memory; }
  const at::Tensor& state(int k) const { return states_[static_cast<size_t>(k)]; }

 private:
  struct Region {
    std::map<program::Value, std::pair<int64_t, int64_t>> places;  // first element and number of elements
    int64_t elements = 0, pool_elements = 0;                       // elements of the region, and of its pool alone
    std::optional<SymmetricMemory> shared;
    std::unique_ptr<CountedMemory> counted, counted_pool;  // count the bytes of `shared`
    at::Tensor memory;
  };
  bool cut(int group) const;  // tells whether its weights are cut over the shard axis
  void lay_out(const program::Program& step, program::ValueKind kind, program::Codec codec, Region& region);
  void allocate(Region& region, program::ValueKind kind, at::ScalarType type, bool symmetric, bool zeros,
                Communicator& comm);
  std::optional<Communicator> ranks_of_equal_size(Communicator& comm) const;
  void find_copies(Communicator& comm);
  program::Value own_value(program::ValueKind kind, int group) const;
  at::Tensor own(program::ValueKind kind, int group) const;
  at::Tensor update_memory(program::ValueKind kind, int group) const;
  void lay_out_host(const program::Program& step, program::ValueKind kind, Region& region);
  at::Tensor own_exact(int group, at::ScalarType type) const;

  Groups groups_;
  int shard_ = 0, shards_ = 1;
  program::Placement shard_placement_;
  // By group: the index of this rank among the ranks that hold the same part, and their number.
  std::vector<std::pair<int, int>> copies_;
  std::vector<bool> keeps_whole_;  // by group
  Region weights_, gradients_, encoded_gradients_;
  Region host_weights_, host_gradients_;
  std::vector<int64_t> state_offsets_;  // num_groups + 1
  std::vector<at::Tensor> states_;
  at::Tensor exact_;  // own_master or own_low_halves of all groups; undefined with fp32 weights
};

}  // namespace herd::runtime
