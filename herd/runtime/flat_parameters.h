// Weights, gradients and optimizer states of a rank, each flat: one region for all groups of a kind, group after group,
// each beginning on a 64-byte line. So a bucket of consecutive groups is one range of memory, and so is the model.
// With peers the gradients lie in memory that the ranks of a host share: they are reduced where backward writes them.
// The padding between groups is zero and stays so.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/communicator.h"
#include "herd/nn/parameter_group.h"

namespace herd::runtime {

using Groups = std::vector<std::shared_ptr<nn::ParameterGroup>>;

class FlatParameters {
 public:
  // Allocates and attaches weights and gradients of every group, and `num_states` zeroed fp32 states per weight.
  // The weights' values are the groups' initial ones for `seed`. Collective where comm.size() > 1.
  FlatParameters(Groups groups, Communicator& comm, int num_states, uint64_t seed);
  ~FlatParameters();  // detaches
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  int num_groups() const { return static_cast<int>(groups_.size()); }
  nn::ParameterGroup& group(int index) const { return *groups_[index]; }
  int index_of(const nn::ParameterGroup& group) const;  // throws kBug if it is none of ours

  int64_t offset(int group) const { return offsets_[group]; }  // elements from the start of each region
  int64_t elements() const { return offsets_.back(); }         // of a region, padding included
  const at::Tensor& weights() const { return weights_; }       // [elements()]
  const at::Tensor& gradients() const { return gradients_; }   // [elements()]
  const at::Tensor& state(int k) const { return states_[k]; }  // [elements()], fp32
  int num_states() const { return static_cast<int>(states_.size()); }

  // The gradients of groups [first, last], one range with the padding between them.
  at::Tensor gradient_range(int first, int last) const;
  at::Tensor group_state(int k, int group) const;  // [group(index).elements()]

  // What allocating this takes, in bytes, before anything is allocated.
  static int64_t bytes(const Groups& groups, int num_states);

 private:
  Groups groups_;
  std::vector<int64_t> offsets_;  // num_groups + 1
  std::optional<SymmetricMemory> shared_;
  std::unique_ptr<CountedMemory> counted_;  // of shared_
  at::Tensor weights_, gradients_;
  std::vector<at::Tensor> states_;
};

}  // namespace herd::runtime
