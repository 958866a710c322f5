// Counts the tokens that chose each expert of each layer in a step, over all ranks, and balances the routers by them.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "herd/nn/router_state.h"

namespace herd::train {

using Routers = std::vector<std::shared_ptr<nn::RouterState>>;  // of the layers with experts, in order

struct ExpertLoad {
  std::vector<std::vector<int64_t>> by_layer;  // tokens that chose each expert
  int64_t dropped = 0;                         // choices that were dropped
  std::vector<int64_t> close_by_layer;         // tokens whose choices are close (nn/router.h)
  double dropped_share() const;                // of all choices
};

// Returns what this rank counted since the last call: RouterState::take_load() of each layer.
std::vector<int64_t> take_expert_load(const Routers& routers);
// Moves the routers' biases by the counts of all ranks together, and returns these. Without counts it does nothing.
ExpertLoad balance_experts(const Routers& routers, const std::vector<int64_t>& counts);
// Returns the imbalance of the least balanced layer: the load of its busiest expert over the mean one.
double worst_imbalance(const std::vector<std::vector<int64_t>>& load_by_layer);

}  // namespace herd::train
