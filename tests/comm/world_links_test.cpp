#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "herd/comm/context.h"
#include "herd/comm/core_share.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/world_probes.h"
#include "herd/launch/cores.h"
#include "herd/topology/topology_text.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/require.h"

namespace herd::comm {
namespace {

using testing_support::require;

using WorldLinks = testing_support::BetweenHosts;

TEST_F(WorldLinks, TellsRankZeroTheSlowestLink_WithEvenlyAndOddlyManyHosts) {
  for (const std::vector<int>& hosts : {std::vector{0, 1}, std::vector{0, 0, 1, 2}}) {
    run_forked(
        static_cast<int>(hosts.size()),
        [](Communicator& comm) {
          const auto probe = probe_links(CommunicatorTestAccess::group(comm));
          require(probe.has_value() == (comm.rank() == 0), "rank 0 hears it, nobody else");
          if (!probe) return;
          require(probe->latency_us > 0.5 && probe->latency_us < 50'000,
                  "a latency of " + std::to_string(probe->latency_us));
          require(probe->message_us > 0.01 && probe->message_us <= probe->latency_us,
                  "a message of " + std::to_string(probe->message_us));
          require(probe->bytes_per_us > 1 && probe->bytes_per_us < 100'000,
                  "a rate of " + std::to_string(probe->bytes_per_us) + " bytes/us");
        },
        testing_support::on_hosts(hosts));
  }
}

TEST_F(WorldLinks, EveryRankHasTheSameTopologyOfRoundNumbers) {
  run_forked(
      4,
      [](Communicator& comm) {
        const Link link = CommunicatorTestAccess::context(comm).facts->between;
        require(link == measure::rounded(link), "round");
        const double latency_us = parse_topology(comm.topology()).hosts[0].uplink.latency_us;
        require(latency_us >= link.latency_us, "turns on a core come on top of it");
        std::vector<double> all(24);
        comm.all_gather(std::vector{link.latency_us, link.bytes_per_us, link.message_us, link.core_bytes_per_us,
                                    link.burst_bytes, link.burst_bytes_per_us},
                        all);
        for (size_t i = 6; i < all.size(); ++i) require(all[i] == all[i % 6], "the same on all ranks");
      },
      testing_support::on_hosts({0, 0, 1, 1}));
}

TEST_F(WorldLinks, HostsOnOneMachineShareItsCores) {
  run_forked(
      4,
      [](Communicator& comm) {
        const transport::Transport& transport = *CommunicatorTestAccess::context(comm).transport;
        require(transport.ranks_of_machine() == 4, "all four run here");
        require(cores_per_rank(transport) == std::min(launch::host_cores() / 2.0, launch::machine_cores() / 4.0),
                "each");
        const Host host = parse_topology(comm.topology()).hosts[0];
        require(host.cores == std::max(1, std::min(launch::host_cores(), launch::machine_cores() / 2)), "half of them");
        require((host.ranks > host.cores) == (cores_per_rank(transport) < 1), "ranks take turns in both");
      },
      testing_support::on_hosts({0, 0, 1, 1}));
}

TEST_F(WorldLinks, HasNothingToMeasureOnOneHost) {
  run_forked(2, [](Communicator& comm) {
    require(!probe_links(CommunicatorTestAccess::group(comm)), "one host has no links");
  });
}

}  // namespace
}  // namespace herd::comm
