// An Arena owns the memory of all values of one kind, codec and tier: the weights on the device, say, gradients as
// bf16, or what the host keeps of activations. It is flat, and values have places in it:
//   in a slot     Values that share a slot take turns in one buffer: those of a pool on the device, staging buffers on
//                 the host, what is written anew in each step in files. Slots come first.
//   of their own  Every other value, wholes before parts. A shard lies inside the whole where both share a slot.
// Lay values out, then allocate once. On the device the memory is torch's, or memory that ranks share, where
// collectives read it. An arena of files has places alone; its memory is an NvmeFile.
// A value is copied to another arena from memory() to memory(), or by NvmeFile where a file has either.
// Threads: one at a time. Tensors that were handed out may be used on others.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/communicator.h"
#include "herd/program/program.h"

namespace herd::runtime {

class Arena {
 public:
  struct Contents {  // what an arena has the values of
    program::ValueKind kind = program::ValueKind::kWeight;
    program::Codec codec = program::Codec::kPlain;
    program::Tier tier = program::Tier::kDevice;
    auto operator<=>(const Contents&) const = default;
  };
  static Contents contents_of(const program::Value& value) { return {value.kind, value.codec, value.tier}; }

  struct Place {
    int64_t begin = 0, elements = 0;  // in elements
  };

  // `alignment` is the number of bytes at a multiple of which places begin; 0 = they follow each other.
  explicit Arena(at::ScalarType type, int64_t alignment = 0);

  // Adds those values of `step` to the layout for which `belongs` holds. They have one tier. `shard_of` says which
  // shard of a group this rank has.
  void lay_out(const program::Program& step, const std::function<bool(const program::Value&)>& belongs,
               const std::function<int(int group)>& shard_of);
  // Adds one with a place of its own.
  void add(const program::Value& value, int64_t elements);

  struct Allocation {
    MemoryLabel label = MemoryLabel::kOther;  // in the table of the device's memory
    bool symmetric = false;                   // true: memory that the ranks of `comm` share
    bool zeros = true;
    bool counts_slots_apart = false;  // true: slots count as workspace; always so in symmetric memory
  };
  // Allocates on `device`. Collective over `comm` where the memory is symmetric. Throws kOverBudget.
  void allocate(const Allocation& allocation, at::Device device, Communicator& comm);
  void allocate_on_host(at::Device device);  // zeros, which the budget of `device` does not count

  bool contains(const program::Value& value) const { return places_.contains(value); }
  std::vector<program::Value> values() const;            // that have places, in their order
  Place place(const program::Value& value) const;        // REQUIRES contains(value)
  at::Tensor memory(const program::Value& value) const;  // [elements], padding included; undefined without a place
  at::Tensor range(const Place& first, const Place& last) const;  // from the one to the other, both included
  const at::Tensor& memory() const { return memory_; }            // all of it; undefined until it is allocated
  at::ScalarType type() const { return type_; }
  int64_t elements() const { return slot_elements_ + own_elements_; }
  int64_t slot_elements() const { return slot_elements_; }  // in slots
  int64_t bytes() const;                                    // that are allocated

 private:
  struct Own {
    bool in_slot = false;
    Place place;  // from where the slots begin, or end
  };
  int64_t rounded(int64_t elements) const;

  at::ScalarType type_;
  int64_t element_bytes_, alignment_;
  std::map<program::Value, Own> places_;
  int64_t slot_elements_ = 0, own_elements_ = 0;
  std::optional<SymmetricMemory> shared_;                   // owner of the memory where ranks share it
  std::unique_ptr<CountedMemory> counted_, counted_slots_;  // what torch does not count, or not under the label
  at::Tensor memory_;
};

}  // namespace herd::runtime
