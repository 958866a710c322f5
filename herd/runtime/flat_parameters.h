// Holds weights, gradients and optimizer states of a rank in flat memory, laid out as the values of its Program say:
//   whole     Values that stay whole lie group after group, in one region for each kind. Each group begins on a 64-byte
//             line. So a bucket of consecutive groups is one range of memory.
//   shard     An axis of n ranks cuts a group, padded to n * S elements, into shards. The rank at index i of the axis
//             has elements [i * S, (i + 1) * S). A shard lies inside the whole if both share a slot, else after the
//             wholes.
//   pooled    The whole of a group lies in the buffer of its slot, from its first write to its release.
//   states    Each is fp32 or bf16, and covers what this rank updates. Beside them lies the remainder, which makes
//             16-bit weights exact. The remainder of fp16 weights is an fp32 master copy. bf16 weights are the upper
//             halves of fp32 numbers, whose lower halves are the remainder (bridge/split_float.h). A frozen group has
//             no states and no gradient.
//   host      A Program may keep states, master copies and the weights that the update works on in host memory. There
//             each slot has a staging buffer, and bf16 weights have an fp32 master copy, too.
//   encoded   Gradients in bf16, as ranks exchange them, lie in a region of their own, laid out like plain ones.
// A rank holds the groups that its Program names, and nothing of other groups.
// With several ranks, gradients lie in memory that the ranks of a host share, and so do weights if they are cut. They
// are reduced where backward writes them, and gathered from where the update leaves them. Padding is zero and stays so;
// without a seed, that of weights may hold anything.
// Owns all this memory; a tensor that it returns is a view, valid while this lives.
// Threads: one at a time. Tensors that were handed out may be used on others.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/communicator.h"
#include "herd/kernels/element_range.h"
#include "herd/nn/parameter_group.h"
#include "herd/program/program.h"

namespace herd::runtime {

using Groups = std::vector<std::shared_ptr<nn::ParameterGroup>>;

class FlatParameters {
 public:
  // Allocates the weights and gradients that `step` names, and a zeroed state of each type in `states` for each weight
  // that this rank updates. `seed` gives the initial weights; without it the caller writes all of them. Attaches the
  // groups that are whole for as long as the run. Collective over `comm`. Throws kOverBudget where the device budget is
  // too small. Throws kBug if groups differ in dtype, or if a value of `step` has no room for its group.
  FlatParameters(Groups groups, const program::Program& step, Communicator& comm,
                 const std::vector<at::ScalarType>& states, std::optional<uint64_t> seed);
  // Does the same for a step that holds every group whole, with gradients that are not pooled.
  FlatParameters(Groups groups, Communicator& comm, const std::vector<at::ScalarType>& states, uint64_t seed);
  ~FlatParameters();  // detaches all groups
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  int num_groups() const { return static_cast<int>(groups_.size()); }
  nn::ParameterGroup& group(int index) const { return *groups_[static_cast<size_t>(index)]; }
  int index_of(const nn::ParameterGroup& group) const;  // throws kBug if the group is not among these

  // Returns the memory of a weight or gradient, padding included; an undefined tensor if this rank has none. A pooled
  // value owns it only from its first write to its release.
  at::Tensor memory(const program::Value& value) const;
  // Returns the whole gradients of groups `first` to `last`, both included, as one range with the padding between them.
  at::Tensor gradient_range(int first, int last, program::Codec codec) const;

  bool holds(int group) const;                  // tells whether this rank has weights of the group, whole or a shard
  bool sharded() const { return shards_ > 1; }  // tells whether an axis cuts groups into shards
  program::Placement shard_placement() const { return shard_placement_; }  // returns that of shards; kWhole without any
  bool keeps_whole(int group) const;  // tells whether the group's weights are whole from step to step

  // own_*       is what this rank updates of a group, on the device.
  // update_*    is the copy that the update works on: the host's if it keeps any, else the same as own_*.
  // saved_part  is the piece of own_* that this rank writes to a checkpoint.
  // All functions from here to own_low_halves() REQUIRE holds(group); tensors have part(group).size() elements.

  // Returns what this rank updates of the group's flat weights: its shard, or all of them. Of a frozen group it is what
  // the rank holds.
  kernels::ElementRange part(int group) const;
  // Returns what this rank saves of part(group). Ranks that hold the same part save a piece each.
  kernels::ElementRange saved_part(int group) const;
  at::Tensor own_weights(int group) const;
  at::Tensor own_gradient(int group) const;      // REQUIRES a group that is not frozen, as own_state() does
  at::Tensor own_state(int k, int group) const;  // REQUIRES k in [0, num_states())
  at::Tensor update_weights(int group) const;
  at::Tensor update_gradient(int group) const;
  // These return the remainder; an undefined tensor if the rank keeps none or the group is frozen.
  at::Tensor own_master(int group) const;      // returns the fp32 numbers that own_weights() are the rounding of
  at::Tensor own_low_halves(int group) const;  // returns int16, the lower halves of fp32 numbers with bf16 upper halves
  int num_states() const { return static_cast<int>(states_.size()); }

  // Copies own_weights() to update_weights() where the host keeps these. Call it after writing weights on the device.
  void refresh_host(int group);

  // These let the group's tensors use the memory of its whole weights or gradient, if they do not yet.
  void attach(int group);
  void attach_gradient(int group);
  // Takes pooled weights from the group's tensors, which then throw when used; leaves weights that are kept whole.
  void detach(int group);

  // These return everything of a kind, padding and pools included, for measurements and hashes. REQUIRES k in
  // [0, num_states()).
  const at::Tensor& weights() const { return weights_.memory; }
  const at::Tensor& gradients() const { return gradients_.memory; }
  const at::Tensor& state(int k) const { return states_[static_cast<size_t>(k)]; }

 private:
  struct Extent {
    int64_t begin = 0, elements = 0;  // in elements
  };
  struct Region {
    std::map<program::Value, Extent> extents;
    int64_t elements = 0, pool_elements = 0;               // elements in all, and those in buffers of pools
    std::optional<SymmetricMemory> shared;                 // owner of `memory` where ranks share it
    std::unique_ptr<CountedMemory> counted, counted_pool;  // what `shared` adds to the device budget
    at::Tensor memory;
  };
  bool cut(int group) const;  // tells whether the shard axis cuts the group's weights
  void lay_out(const program::Program& step, program::ValueKind kind, program::Codec codec, Region& region);
  void allocate(Region& region, program::ValueKind kind, at::ScalarType type, bool symmetric, bool zeros,
                Communicator& comm);
  std::optional<Communicator> ranks_of_equal_size(Communicator& comm) const;
  void find_replicas(Communicator& comm);
  program::Value own_value(program::ValueKind kind, int group) const;
  at::Tensor own(program::ValueKind kind, int group) const;
  at::Tensor update_memory(program::ValueKind kind, int group) const;
  void lay_out_host(const program::Program& step, program::ValueKind kind, Region& region);
  at::Tensor own_remainder(int group, at::ScalarType type) const;

  Groups groups_;
  int shard_ = 0, shards_ = 1;  // this rank's index among the ranks of the shard axis, and their number
  program::Placement shard_placement_;
  // By group, the (index, number) of this rank among the ranks that hold the same part of it.
  std::vector<std::pair<int, int>> replica_index_and_count_;
  std::vector<bool> keeps_whole_;  // by group
  Region weights_, gradients_, encoded_gradients_;
  Region host_weights_, host_gradients_;
  std::vector<int64_t> state_offsets_;  // first element of each group in states_ and remainder_, then their size
  std::vector<at::Tensor> states_;
  at::Tensor remainder_;  // own_master() or own_low_halves() of all groups; undefined with fp32 weights
};

}  // namespace herd::runtime
