// Holds what a layer's router knows beside its weight: how many tokens chose each expert, and the bias that evens this
// out. Threads: one at a time.
//
// Without a loss, experts of many tokens lose some of them to others through a bias of their score, which moves by
// `speed` a step and has no gradient. The counts are those of all ranks, so that all of them keep the same bias:
//   bias_e += speed * sign(mean load - load_e)
// Source: Wang et al. 2024, arXiv:2408.15664, algorithm 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "herd/nn/token_cut.h"

namespace herd::nn {

class RouterState {
 public:
  // `name` is that of the bias in checkpoints. speed = 0: there is no bias.
  RouterState(std::string name, int64_t experts, double speed);
  RouterState(const RouterState&) = delete;
  RouterState& operator=(const RouterState&) = delete;
  const std::string& name() const { return name_; }
  const at::Tensor& bias_E() const { return bias_E_; }  // fp32; undefined where there is none

  // Adds the chosen experts of a pass (Routing::experts_Nk) over these rows; padding does not count. `close_N` has 1
  // for each row whose choice is close (Routing::close_N), or is empty.
  void count(const at::Tensor& experts_Nk, std::span<const TokenRow> rows, std::span<const uint8_t> close_N = {});
  // Returns how many tokens chose each expert since the last call; after these how many choices were dropped, and how
  // many tokens had a close choice.
  std::vector<int64_t> take_load();
  // Moves the bias by the tokens of each expert in a step, over all ranks. It does nothing where there is none.
  void balance(const std::vector<int64_t>& load);

 private:
  std::string name_;
  double speed_;
  std::vector<float> bias_;  // on the host's heap, beside the memory that a budget counts
  at::Tensor bias_E_;
  std::vector<int64_t> load_;
};

constexpr int kCountsBesideLoad = 2;  // what take_load() returns after those of experts

// Returns the load of the busiest expert over the mean one: 1 where all have equal shares, or there is none.
double imbalance(const std::vector<int64_t>& load);

}  // namespace herd::nn
