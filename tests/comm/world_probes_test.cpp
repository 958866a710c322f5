#include "herd/comm/world_probes.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "herd/comm/context.h"
#include "herd/comm/core_share.h"
#include "herd/comm/inproc_world.h"
#include "herd/topology/topology_text.h"

namespace herd::comm {
namespace {

using namespace std::chrono_literals;

std::optional<measure::MemoryProbe> probed(Communicator& comm) {
  return probe_memory(CommunicatorTestAccess::group(comm));
}

TEST(WorldMemory, TellsRankZeroWhatTheRanksOfItsHostTake) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector{0, 1, 0, 1}, std::vector{0, 0, 0, 1}}) {
    run_inproc(
        4,
        [](Communicator& comm) {
          const auto cores =
              static_cast<int>(cores_for_ranks_of_host(*CommunicatorTestAccess::context(comm).transport));
          int here = 0;
          for (Rank rank = 0; rank < comm.size(); ++rank)
            here += CommunicatorTestAccess::group(comm).channel().maps(rank);
          const auto probe = probed(comm);
          const bool measures = comm.rank() == 0 && std::min(here, cores) >= 2;
          EXPECT_EQ(probe.has_value(), measures) << "rank " << comm.rank();
          if (!probe) return;
          EXPECT_EQ(probe->ranks, std::min(here, cores));
          for (const double us :
               {probe->alone_us, probe->all_us, probe->alone_past_cache_us, probe->all_past_cache_us}) {
            EXPECT_GT(static_cast<double>(probe->bytes) / us, 10);  // bytes/us: a sanitizer's rate
            EXPECT_LT(static_cast<double>(probe->bytes) / us, 1e6);
          }
        },
        hosts);
  }
}

TEST(WorldMemory, TakesNoTurnsOfTheSystem_WhenItsRanksShareACore) {
  run_inproc(2, [](Communicator& comm) {
    cpu_set_t one, before;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof before, &before);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
    auto least = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 5; ++i) {
      comm.barrier();
      const auto begin = std::chrono::steady_clock::now();
      probed(comm);
      least = std::min(least, std::chrono::steady_clock::now() - begin);
    }
    sched_setaffinity(0, sizeof before, &before);
    EXPECT_LT(least, 60ms);  // ranks that wait for each other in every round take 200
  });
}

TEST(WorldMemory, EveryRankAndGroupChoosesOnTheSameHost) {
  run_inproc(4, [](Communicator& comm) {
    const Host host = CommunicatorTestAccess::context(comm).facts->host;
    std::vector<double> all(16);
    comm.all_gather(std::vector{host.cached_core_bytes_per_us, host.memory_bytes_per_us, host.stage_write_factor,
                                host.cached_bytes_per_us},
                    all);
    for (size_t i = 4; i < all.size(); ++i) EXPECT_EQ(all[i], all[i % 4]);
    Communicator half = comm.split(comm.rank() / 2, comm.rank());
    for (Communicator* group : {&comm, &half}) {
      const Host chosen = parse_topology(group->topology()).hosts[0];
      EXPECT_EQ(chosen.cached_core_bytes_per_us, host.cached_core_bytes_per_us);
      // No measured rate is the usual one: they are 1 or 3.15 times a power of ten.
      if (host.cores > 1) {
        EXPECT_NE(chosen.cached_core_bytes_per_us, Host{}.cached_core_bytes_per_us);
      }
    }
  });
}

}  // namespace
}  // namespace herd::comm
