// What a transport has counted against the equations of the algorithms, on any transport.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/collectives/sent_by_all_reduce.h"
#include "tests/comm/require.h"
#include "tests/comm/stand_on_grid.h"

namespace herd::testing_support {

// Every all-reduce that these ranks can run, of a short and of a longer message. Throws where other bytes were counted
// than the equation says. Collective.
inline void check_counted_bytes(Communicator& world, const Placement& placement = {}) {
  stand_on_grid(world, placement.grid);
  Communicator group = world.split(0, world.rank());
  const int n = group.size();
  SymmetricMemory memory = group.allocate_symmetric(900LL * n * 4);
  std::fill_n(memory.span<float>().data(), 900LL * n, 1.0f);
  for (const int64_t elements : {36LL * n, 900LL * n}) {
    CollectiveRequest request{
        .collective = Collective::kAllReduce, .num_ranks = n, .elements = elements, .in_place = true};
    request.hosts = placement.hosts, request.grid = placement.grid;
    for (const AlgorithmInfo& info : algorithms(Collective::kAllReduce)) {
      if (!serves(info, request)) continue;
      const uint64_t before = group.bytes_moved();
      group.all_reduce(memory.span<float>().first(static_cast<size_t>(elements)), {.algorithm = info.name});
      const auto mine = static_cast<int64_t>(group.bytes_moved() - before);
      std::vector<int64_t> by_rank(static_cast<size_t>(n));
      group.all_gather(std::vector<int64_t>{mine}, by_rank);
      const SentBytes sent = sent_by_all_reduce(info.name, request);
      const std::string what = title(info, request) + " on " + describe(placement) + ": rank " +
                               std::to_string(group.rank()) + " has sent " + std::to_string(mine) + " bytes, all " +
                               std::to_string(std::accumulate(by_rank.begin(), by_rank.end(), int64_t{0}));
      require(std::accumulate(by_rank.begin(), by_rank.end(), int64_t{0}) == sent.all,
              what + ", not " + std::to_string(sent.all));
      require(!sent.each || mine == *sent.each, what + ", not each " + std::to_string(sent.each.value_or(0)));
      require(mine <= sent.most, what + ", more than " + std::to_string(sent.most));
    }
  }
}

}  // namespace herd::testing_support
