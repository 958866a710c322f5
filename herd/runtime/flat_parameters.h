// Holds weights, gradients and optimizer states of a rank in arenas (arena.h), laid out as the values of its Program
// say:
//   whole     Values that stay whole lie group after group, in one arena for each kind. Each group begins on a 64-byte
//             line. So a bucket of consecutive groups is one range of memory.
//   shard     An axis of n ranks cuts a group, padded to n * S elements, into shards. The rank at index i of the axis
//             has elements [i * S, (i + 1) * S).
//   owned     Where groups have owners, the owner has the whole in place of a shard, and other ranks nothing: part() is
//             empty there.
//   pooled    The whole of a group lies in the buffer of its slot, from its first write to its release.
//   states    Each is fp32 or bf16, and covers what this rank updates. Beside them lies the remainder, which makes
//             16-bit weights exact. The remainder of fp16 weights is an fp32 master copy. bf16 weights are the upper
//             halves of fp32 numbers, whose lower halves are the remainder (bridge/split_float.h). A frozen group has
//             no states and no gradient.
//   host      A Program may keep states, master copies and the weights that the update works on in host memory. There
//             each slot has a staging buffer, and bf16 weights have an fp32 master copy, too.
//             Where it keeps all weights there, or all shards, the device has buffers of a pool for them. A shard lies
//             inside the whole if the host has both.
//             Activations that wait there for backward have buffers, too.
//   files     It may keep them in files on NVMe instead, those of some groups or of all, and then the host has staging
//             buffers alone. own_state(), own_master() and own_weights() of what stays there are then views of the
//             mapped file, for use outside of steps: call forget_mapped() before the next step. Steps read and write
//             the file through the staging buffers.
//   pieces    Where a group is updated in pieces, the host has staging buffers of a piece of its weights, gradient and
//             states. The file keeps each state of the group as one range, of which a piece has a part.
//   encoded   Gradients in bf16, as ranks exchange them, have an arena of their own, laid out like plain ones. So do
//             what ranks send of gradients in int8 or int4 for their shards, pooled, and weights in int8, the shards
//             and the buffers that they are gathered into, as bytes of kernels/codec.h.
// A rank holds the groups that its Program names, and nothing of other groups.
// With several ranks, gradients lie in memory that the ranks of a host share, and so do weights if they are cut. They
// are reduced where backward writes them, and gathered from where the update leaves them. Padding is zero and stays so;
// without a seed, that of weights may hold anything.
// Owns all this memory; a tensor that it returns is a view, valid while this lives.
// Threads: one at a time. Tensors that were handed out may be used on others.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/kernels/element_range.h"
#include "herd/memory/nvme_file.h"
#include "herd/nn/parameter_group.h"
#include "herd/program/program.h"
#include "herd/program/program_names.h"
#include "herd/runtime/arena.h"

namespace herd::runtime {

using Groups = std::vector<std::shared_ptr<nn::ParameterGroup>>;

// Says where a rank keeps the values that its Program keeps on NVMe.
struct FilePlace {
  std::vector<std::filesystem::path> paths;  // of one file, or of several over which values are striped
  std::string run;                           // id of the run, whose files they are
};

class FlatParameters {
 public:
  // Allocates the weights and gradients that `step` names, and a zeroed state of each type in `states` for each weight
  // that this rank updates. `seed` gives the initial weights; without it the caller writes all of them. Attaches the
  // groups that are whole for as long as the run. Collective over `comm`. Throws kOverBudget where the device budget is
  // too small. Throws kBug if groups differ in dtype, or if a value of `step` has no room for its group. Throws as
  // NvmeFile where the step keeps values in files.
  FlatParameters(Groups groups, const program::Program& step, Communicator& comm,
                 const std::vector<at::ScalarType>& states, std::optional<uint64_t> seed, const FilePlace& file = {});
  // Does the same for a step that holds every group whole, with gradients that are not pooled.
  FlatParameters(Groups groups, Communicator& comm, const std::vector<at::ScalarType>& states, uint64_t seed);
  ~FlatParameters();  // detaches all groups
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  at::Device device() const { return groups_.front()->device(); }  // that of all but what the host keeps
  const Groups& groups() const { return groups_; }
  int num_groups() const { return static_cast<int>(groups_.size()); }
  nn::ParameterGroup& group(int index) const { return *groups_[static_cast<size_t>(index)]; }
  int index_of(const nn::ParameterGroup& group) const;  // throws kBug if the group is not among these

  // Returns the memory of a weight or gradient, padding included; an undefined tensor if this rank has none. A pooled
  // value owns it only from its first write to its release.
  at::Tensor memory(const program::Value& value) const;
  // Returns the whole gradients of groups `first` to `last`, both included, as one range with the padding between them.
  at::Tensor gradient_range(int first, int last, program::Codec codec) const;

  bool holds(int group) const;  // tells whether this rank has weights of the group, whole or a shard
  int num_shards(int group) const { return cut_of(group).shards; }  // into which an axis cuts the group; 1 = none does
  bool keeps_whole(int group) const;  // tells whether the group's weights are whole from step to step
  bool pools_gradient(int group) const { return pools_gradient_[static_cast<size_t>(group)]; }  // a whole, in a slot
  // Tells whether the host or a file keeps what this rank has of the group's weights, of which the device has copies
  // only while passes use them.
  bool stays_on_host(int group) const { return stays_on_host_[static_cast<size_t>(group)]; }

  // own_*       is what this rank updates of a group, on the device; on the host where weights stay there.
  // update_*    is the copy that the update works on: the host's if it has any, else the same as own_*.
  // saved_part  is the piece of own_* that this rank writes to a checkpoint.
  // All functions from here to own_low_halves() REQUIRE holds(group); tensors have part(group).size() elements.

  // Returns what this rank updates of the group's flat weights: its shard, or all of them. Of a frozen group it is what
  // the rank holds.
  kernels::ElementRange part(int group) const;
  // Returns what this rank saves of part(group). Ranks that hold the same part save a piece each.
  kernels::ElementRange saved_part(int group) const;
  // Return the number of pieces in which the host updates the group, which count from 1, and the elements of one; 0
  // pieces, and piece 0 has all, where it is updated as one.
  int num_pieces(int group) const { return pieces_[static_cast<size_t>(group)].count; }
  kernels::ElementRange piece(int group, int number) const;
  at::Tensor own_weights(int group) const;
  at::Tensor own_gradient(int group) const;      // REQUIRES a group that is not frozen, as own_state() does
  at::Tensor own_state(int k, int group) const;  // REQUIRES k in [0, num_states())
  // These take the number of a piece where the group is updated in pieces. Of a gradient that waits on the host for its
  // update, 0 gives all of it.
  at::Tensor update_weights(int group, int piece = 0) const;
  at::Tensor update_gradient(int group, int piece = 0) const;
  at::Tensor update_state(int k, int group, int piece = 0) const;
  at::Tensor update_master(int group, int piece = 0) const;
  // These return the remainder; an undefined tensor if the rank keeps none or the group is frozen.
  at::Tensor own_master(int group) const;      // returns the fp32 numbers that own_weights() are the rounding of
  at::Tensor own_low_halves(int group) const;  // returns int16, the lower halves of fp32 numbers with bf16 upper halves
  int num_states() const { return static_cast<int>(state_types_.size()); }

  // Copies own_weights() to what the host or a file keeps of them. Call it after writing weights on the device.
  void refresh_host(int group);

  // These REQUIRE a step that gathers the group's weights in a codec. Encodes the shard that this rank sends; call it
  // after writing own_weights(). Decodes what is gathered into memory(weight(group)).
  void encode_shard(int group);
  void decode_gathered(int group);
  // These REQUIRE a step that sums shards of encoded gradients. Encodes the group's whole gradient for each rank; adds
  // the terms that ranks have sent, and what the shard holds where `adds`.
  void encode_terms(int group, program::Codec codec);
  void sum_terms(int group, program::Codec codec, bool adds);
  // Encodes the sums of the terms that the ranks of this host have sent, of the shards at this rank's place of all
  // hosts.
  void sum_host_terms(int group, program::Codec codec);
  bool gathers_encoded(int group) const;  // tells whether the step does

  // Returns the values on the host that are staged for what the file keeps; none without a file.
  std::vector<program::Value> staged_values() const;
  // Copy values on the host from the file or to it; REQUIRES that the file keeps them. Throw as NvmeFile.
  void read_file(std::span<const program::Value> on_host);
  void write_file(std::span<const program::Value> on_host);
  // Returns where the file keeps these values, and their memory on the host: one range of a value, or one for each
  // state of a piece.
  std::vector<NvmeFile::Extent> extents_in_file(std::span<const program::Value> on_host) const;
  // Ends the use of what own_state() and own_master() returned, where a file keeps these; else does nothing.
  void forget_mapped();
  const NvmeFile* file() const { return file_.get(); }  // null where no file keeps values
  NvmeFile* file() { return file_.get(); }
  int64_t host_bytes() const;  // returns the bytes of host memory that these values take

  // These let the group's tensors use the memory of its whole weights or gradient, if they do not yet.
  void attach(int group);
  void attach_gradient(int group);
  // Returns all weights of the group where the host has them; an undefined tensor where it has a shard, or nothing. Of
  // a group in a file they are there between their fetch and their release.
  at::Tensor whole_on_host(int group) const;
  // Lets the group's tensors, which are the device's, read whole_on_host(group), in place of the memory that they use
  // now: a device reads page-locked memory at the address that the host has for it (base/device_driver.h).
  void attach_on_host(int group);
  // Takes pooled weights from the group's tensors, which then throw when used; leaves weights that are kept whole.
  void detach(int group);

  // These return everything of a kind in memory, padding and pools included, for measurements and hashes. REQUIRES k in
  // [0, num_states()).
  const at::Tensor& weights() const { return arena(program::ValueKind::kWeight).memory(); }
  const at::Tensor& gradients() const { return arena(program::ValueKind::kGradient).memory(); }
  const at::Tensor& state(int k) const { return states_[static_cast<size_t>(k)].memory(); }

 private:
  // Says how an axis cuts a group into shards, or that one of its ranks owns the group.
  struct Cut {
    int shard = 0, shards = 1;  // this rank's index among the ranks of the axis, and their number
    program::Placement placement = {};
    bool owned = false;
  };
  const Cut& cut_of(int group) const { return cuts_[static_cast<size_t>(group)]; }
  bool cut(int group) const;                // tells whether this rank has a shard of the group's weights, or owns them
  int64_t part_elements(int group) const;   // returns the elements of that shard, padding included; -1 without one
  bool is_of_other_owner(int group) const;  // tells whether another rank updates all of the group
  void check_room(const program::Program& step) const;  // throws kBug where a whole value is smaller than its group
  void make_arenas(const program::Program& step);
  void allocate_arenas(Communicator& comm, bool zeros_in_weights);
  void allocate_states(bool on_host, Communicator& comm);
  const Arena& arena(program::ValueKind kind, program::Codec codec = program::Codec::kPlain,
                     program::Tier tier = program::Tier::kDevice) const {
    return arenas_.at({kind, codec, tier});
  }
  // Returns the memory of a group's weights in the codec in which they are gathered.
  at::Tensor encoded_weights(int group, program::Placement placement) const;
  // Tells whether owners have memory beside the wholes of the arena. Ranks own different groups then, so that their
  // arenas differ in size, and no rank maps another's.
  bool lies_apart(const Arena& arena) const;
  std::optional<Communicator> ranks_of_equal_size(Communicator& comm) const;
  void find_replicas(Communicator& comm);
  program::Value own_value(program::ValueKind kind, int group, int piece = 0) const;
  at::Tensor own(program::ValueKind kind, int group) const;
  at::Tensor update_memory(program::ValueKind kind, int group, int piece) const;
  void open_file(const program::Program& step, const FilePlace& place);
  // Returns a part of what a file keeps of a group's states: state k, or the remainder after the last one. `states` are
  // bytes, with room for so many elements of each state.
  at::Tensor part_of_states(const at::Tensor& states, int k, int64_t room, int64_t elements) const;
  at::ScalarType type_of_state(int k) const;  // that of the remainder after the last one
  // Returns the elements of each state that a piece has room for: whole blocks; those of the part without pieces.
  int64_t state_room(int group, int piece) const;
  void find_pieces(const program::Program& step);
  std::vector<std::span<std::byte>> staging_memory(const program::Program& step) const;
  // Returns the mapped bytes of a value in the file; an undefined tensor if the file does not keep it.
  at::Tensor mapped(const program::Value& value) const;
  int64_t host_bytes_of(const program::Value& value) const;  // returns the bytes of a value's memory on the host
  at::Tensor own_remainder(int group, at::ScalarType type) const;
  // Tells whether a file keeps what this rank has of the group's states or weights from step to step.
  bool in_file(program::ValueKind kind, int group) const {
    return in_files_.contains(in_tier(own_value(kind, group, num_pieces(group) > 0 ? 1 : 0), program::Tier::kNvme));
  }

  // Says in which pieces the host updates a group.
  struct Pieces {
    int count = 0;
    int64_t elements = 0, all = 0;  // of each but the last, and of all, padding included
  };
  Groups groups_;
  std::vector<Cut> cuts_;       // by group
  std::vector<Pieces> pieces_;  // by group
  // Of steps that sum encoded gradients inside hosts first: the hosts, and where those terms and their sums lie.
  int hosts_ = 1;
  program::Placement host_terms_, host_sums_;
  // By group, the (index, number) of this rank among the ranks that hold the same part of it.
  std::vector<std::pair<int, int>> replica_index_and_count_;
  std::vector<bool> keeps_whole_, stays_on_host_, pools_gradient_;  // by group
  std::vector<bool> on_host_;                // by group: its tensors read the weights that the host keeps
  std::map<Arena::Contents, Arena> arenas_;  // on the device and on the host, all but those of states that stay there
  bool states_on_host_ = false;              // true: states_ and remainder_ lie there
  std::unique_ptr<NvmeFile> file_;           // null where no file keeps values
  Arena in_files_;                           // the places of values in the file, in bytes
  std::vector<at::ScalarType> state_types_;
  std::vector<Arena> states_;       // by state, with the value of what this rank updates of each group
  std::optional<Arena> remainder_;  // own_master() or own_low_halves() of all groups; none with fp32 weights
};

}  // namespace herd::runtime
