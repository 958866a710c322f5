#include <algorithm>

#include "herd/sim/fair_share_internal.h"

namespace herd::sim {

std::vector<double> fair_speeds(std::span<const std::vector<Use>* const> uses, std::span<const double> capacities) {
  std::vector<double> speeds(uses.size(), 0);
  std::vector<bool> fixed(uses.size(), false);
  std::vector<double> left(capacities.begin(), capacities.end());
  size_t growing = uses.size();
  double level = 0;  // the common speed of all that still grow
  std::vector<double> demand(capacities.size());
  while (growing > 0) {
    std::fill(demand.begin(), demand.end(), 0.0);
    for (size_t i = 0; i < uses.size(); ++i) {
      if (fixed[i]) continue;
      for (const Use& use : *uses[i]) demand[use.resource] += use.rate;
    }
    double growth = 1 - level;
    int full_resource = -1;
    for (size_t r = 0; r < left.size(); ++r) {
      if (demand[r] > 0 && left[r] / demand[r] < growth) {
        growth = left[r] / demand[r];
        full_resource = static_cast<int>(r);
      }
    }
    level += growth;
    for (size_t r = 0; r < left.size(); ++r) left[r] = std::max(0.0, left[r] - growth * demand[r]);
    for (size_t i = 0; i < uses.size(); ++i) {
      if (fixed[i]) continue;
      const bool stops =
          full_resource < 0 || std::any_of(uses[i]->begin(), uses[i]->end(), [full_resource](const Use& use) {
            return use.resource == full_resource && use.rate > 0;
          });
      if (!stops) continue;
      fixed[i] = true;
      speeds[i] = level;
      --growing;
    }
  }
  return speeds;
}

}  // namespace herd::sim
