// Puts a world on a grid, for compositions, also one that lies across hosts as no topology says it.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "herd/collectives/registry.h"
#include "herd/comm/context.h"

namespace herd::testing_support {

// Groups that are made from the world later, of as many ranks, run the algorithms that are named to them on the grid.
inline void stand_on_grid(Communicator& world, const std::vector<int>& grid) {
  auto& schedules = comm::CommunicatorTestAccess::context(world).schedules;
  schedules = [grid, n = world.size(), found = schedules](std::vector<Rank> members) -> comm::ScheduleSource {
    return
        [grid, n, by_hosts = found(std::move(members))](std::string_view algorithm, const CollectiveRequest& request) {
          if (grid.empty() || algorithm.empty() || request.num_ranks != n) return by_hosts(algorithm, request);
          CollectiveRequest placed = request;
          placed.grid = grid;
          return build_schedule(algorithm, placed);
        };
  };
}

}  // namespace herd::testing_support
