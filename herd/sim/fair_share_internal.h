// Computes max-min fair speeds of tasks that share resources, by progressive filling. Threads: pure.
#pragma once

#include <span>
#include <vector>

#include "herd/sim/engine.h"

namespace herd::sim {

// Returns speeds in (0, 1], one per entry of `uses`. All grow alike until a resource is full; its tasks stop there, and
// so on.
std::vector<double> fair_speeds(std::span<const std::vector<Use>* const> uses, std::span<const double> capacities);

}  // namespace herd::sim
