// Weights, gradients and optimizer states of a rank, each flat, laid out as the values of its Program say:
//   whole     one region for all groups of a kind, group after group, each beginning on a 64-byte line. So a bucket of
//             consecutive groups is one range of memory, and so is the model
//   shard     this rank's part of a group that is cut over an axis: elements [index * S, (index + 1) * S) of the group
//             padded to n * S. It lies at its place in the whole where both share a slot, else in a region of shards
//   states    fp32 or bf16, of what this rank updates. With 16-bit weights also what makes them exact: of fp16 an fp32
//             master copy; of bf16, which are upper halves of fp32 numbers (bridge/split_float.h), the lower halves.
//             Frozen groups have neither, nor gradients
//   host      what a Program keeps on the host: states and what makes 16-bit weights exact (a master copy then, of bf16
//             too), weights that the update works on, and staging buffers, one a slot; in memory that is not the
//             device's
//   encoded   gradients in bf16, as they are moved: laid out like plain ones, in a region of their own
//   pooled    the whole of a group, for as long as the Program keeps it, in the buffer of its slot
// A rank that runs a part of the model holds the groups that its Program names, and has nothing of the others.
// With peers, what collectives move lies in memory that the ranks of a host share: it is reduced where backward writes
// it and gathered from where the update leaves it. All padding is zero and stays so.
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

// Elements [begin, begin + count) of a group.
struct Part {
  int64_t begin = 0, count = 0;
};

class FlatParameters {
 public:
  // Allocates what `step` holds of weights and gradients, and zeroed states of types `states` for each weight that this
  // rank updates. Weights get the groups' initial values for `seed`; without one they are for somebody else to write,
  // all of them. What is whole for as long as the run is attached. Collective where comm.size() > 1.
  FlatParameters(Groups groups, const program::Program& step, Communicator& comm,
                 const std::vector<at::ScalarType>& states, std::optional<uint64_t> seed);
  // Everything whole.
  FlatParameters(Groups groups, Communicator& comm, const std::vector<at::ScalarType>& states, uint64_t seed);
  ~FlatParameters();  // detaches
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  int num_groups() const { return static_cast<int>(groups_.size()); }
  nn::ParameterGroup& group(int index) const { return *groups_[static_cast<size_t>(index)]; }
  int index_of(const nn::ParameterGroup& group) const;  // throws kBug if it is none of ours

  // Memory of a value, padding included; undefined if this rank holds none. A pooled one's is its group's only from its
  // first write to its release.
  at::Tensor memory(const program::Value& value) const;
  // The gradients of whole groups [first, last], one range with the padding between them.
  at::Tensor gradient_range(int first, int last, program::Codec codec) const;

  bool holds(int group) const;  // its weights, whole or a shard
  bool sharded() const { return shards_ > 1; }
  program::Placement shard_placement() const { return shard_placement_; }  // of what is cut; whole if nothing is
  bool keeps_whole(int group) const;                                       // weights, from step to step
  // What this rank updates of a group, and its memory: [part(group).count]. Of a frozen group, what it holds: its
  // shard, or all of it. Such a one has weights alone. REQUIRES holds(group), as all that follow.
  Part part(int group) const;
  Part saved_part(int group) const;  // of it, what this rank saves: ranks that hold the same cut it like shards
  at::Tensor own_weights(int group) const;
  at::Tensor own_gradient(int group) const;
  at::Tensor own_state(int k, int group) const;
  // Where the update works: own_weights and own_gradient, or what the host has of them.
  at::Tensor stepped_weights(int group) const;
  at::Tensor stepped_gradient(int group) const;
  // What own_weights leave out of fp32 weights; undefined where weights have another type, or are frozen.
  at::Tensor own_master(int group) const;  // of fp16: fp32, what they are the rounding of
  at::Tensor own_low(int group) const;     // of bf16: int16, the lower halves
  int num_states() const { return static_cast<int>(states_.size()); }

  // Where the host keeps weights that it steps: makes them those of the device, which somebody else has written.
  void refresh_host(int group);

  // Lets the group's tensors use the memory of its whole weights or gradient. Nothing where they do already.
  void attach(int group);
  void attach_gradient(int group);
  void detach(int group);  // of weights that are pooled; else nothing

  // Regions, with everything of their kind: for measurements and hashes.
  const at::Tensor& weights() const { return weights_.memory; }
  const at::Tensor& gradients() const { return gradients_.memory; }
  const at::Tensor& state(int k) const { return states_[static_cast<size_t>(k)]; }

 private:
  struct Region {
    std::map<program::Value, std::pair<int64_t, int64_t>> places;  // first element, elements
    int64_t elements = 0, pool_elements = 0;                       // of which the pool's
    std::optional<SymmetricMemory> shared;
    std::unique_ptr<CountedMemory> counted, counted_pool;  // of `shared`
    at::Tensor memory;
  };
  bool cut(int group) const;  // its weights, over the shard axis
  void lay_out(const program::Program& step, program::ValueKind kind, program::Codec codec, Region& region);
  void allocate(Region& region, program::ValueKind kind, at::ScalarType type, bool symmetric, bool zeros,
                Communicator& comm);
  std::optional<Communicator> ranks_of_equal_size(Communicator& comm) const;
  void find_copies(Communicator& comm);
  program::Value own_value(program::ValueKind kind, int group) const;
  at::Tensor own(program::ValueKind kind, int group) const;
  at::Tensor stepped(program::ValueKind kind, int group) const;
  void lay_out_host(const program::Program& step, program::ValueKind kind, Region& region);
  at::Tensor own_exact(int group, at::ScalarType type) const;

  Groups groups_;
  int shard_ = 0, shards_ = 1;
  program::Placement shard_placement_;
  std::vector<std::pair<int, int>>
      copies_;                     // by group: of the ranks that hold the same part this is which, of how many
  std::vector<bool> keeps_whole_;  // by group
  Region weights_, gradients_, encoded_gradients_;
  Region host_weights_, host_gradients_;
  std::vector<int64_t> state_offsets_;  // num_groups + 1
  std::vector<at::Tensor> states_;
  at::Tensor exact_;  // own_master or own_low of all groups; undefined with fp32 weights
};

}  // namespace herd::runtime
