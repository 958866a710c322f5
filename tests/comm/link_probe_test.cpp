#include "herd/comm/link_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "herd/comm/context.h"
#include "herd/comm/core_share.h"
#include "herd/comm/fork_world.h"
#include "herd/launch/cores.h"
#include "herd/topology/text.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/require.h"
#include "tests/comm/simulated_cable.h"

namespace herd::comm {
namespace {

using testing_support::require;

// What a probe of this cable finds; the rest as End has it, of the end that answers.
Link probed(const Link& cable, double interrupted_us = 0, double prepares_us = 0, double burst_bytes = 0) {
  testing_support::SimulatedCable simulated(cable, burst_bytes);
  std::thread other([&] {
    testing_support::SimulatedCable::End end(simulated, 1);
    end.interrupt_between_halves(interrupted_us);
    end.prepare_for(prepares_us);
    answer(end);
  });
  testing_support::SimulatedCable::End end(simulated, 0);
  const Link link = ask(end);
  other.join();
  return link;
}

TEST(LinkProbe, FindsWhatASimulatedCableHas_WhereTheCableIsTheLimit) {
  for (const Link& cable :
       {Link{10, 100, 4, 0}, Link{50, 1'000, 1, 0}, Link{10, 100, 9, 5'000}, Link{20, 12.5, 4, 0}}) {
    const Link found = probed(cable);
    EXPECT_NEAR(found.latency_us, cable.latency_us + 8 / cable.bytes_per_us, 0.05);  // its 8 bytes pass, too
    EXPECT_NEAR(found.bytes_per_us, cable.bytes_per_us, 0.05 * cable.bytes_per_us);
    EXPECT_NEAR(found.message_us, cable.message_us, 0.1 + 0.01 * cable.message_us);
    EXPECT_EQ(found.core_bytes_per_us, 0);
  }
}

TEST(LinkProbe, FindsWhatACorePasses_WhereItIsTheLimit) {
  const Link found = probed({10, 100'000, 4, 1'000});
  EXPECT_NEAR(found.bytes_per_us, 1'000, 10);  // one way, the core is the link
  EXPECT_NEAR(found.core_bytes_per_us, 1'000, 10);
}

TEST(LinkProbe, TakesNoLinkForFaster_WhenItsReceiverIsInterruptedBetweenTheHalves) {
  const Link found = probed({10, 100, 4, 0}, 50'000);
  EXPECT_LT(found.bytes_per_us, 100);  // the second half was there already
  EXPECT_GT(found.bytes_per_us, 1);
}

TEST(LinkProbe, FindsTheRateOfACableThatPassesBursts_WhenOneEndIsAheadOfTheOther) {
  for (const double late_us : {0, 500, 1'000, 2'000, 3'000, 10'000}) {
    const Link found = probed({10, 125, 4, 0}, 0, late_us, 256 << 10);
    EXPECT_NEAR(found.bytes_per_us, 125, 6) << late_us;
    EXPECT_EQ(found.core_bytes_per_us, 0) << late_us;
    EXPECT_NEAR(found.burst_bytes, 256 << 10, 32 << 10) << late_us;
  }
}

TEST(LinkProbe, FindsNoBurst_WhereTheCableHasNone) {
  for (const Link& cable :
       {Link{10, 100, 4, 0}, Link{50, 1'000, 1, 0}, Link{20, 12.5, 4, 0}, Link{10, 100'000, 4, 1'000}}) {
    EXPECT_EQ(probed(cable).burst_bytes, 0);
  }
}

TEST(LinkProbe, FindsNoBurst_WhereItsFirstMessagesAreLate) {
  testing_support::SimulatedCable simulated({10, 1'250, 4, 0});
  std::thread other([&] {
    testing_support::SimulatedCable::End end(simulated, 1);
    answer(end);
  });
  testing_support::SimulatedCable::End end(simulated, 0);
  end.receive_late(70, 100);
  const Link found = ask(end);
  other.join();
  EXPECT_EQ(found.burst_bytes, 0) << found.burst_bytes_per_us;
}

TEST(LinkProbe, TakesAFewDozenLatencies_WhereTheyAreLong) {
  testing_support::SimulatedCable simulated({40'000, 1'250, 4, 0});
  std::thread other([&] {
    testing_support::SimulatedCable::End end(simulated, 1);
    answer(end);
  });
  testing_support::SimulatedCable::End end(simulated, 0);
  EXPECT_NEAR(ask(end).latency_us, 40'000, 1);
  other.join();
  EXPECT_LT(end.now_us() / 40'000, 150);
}

TEST(LinkProbe, FindsTheSame_WhenTheOtherEndIsInterruptedInEverySecondExchange) {
  EXPECT_EQ(probed({10, 100, 4, 0}, 2'000).core_bytes_per_us, 0);
  EXPECT_NEAR(probed({10, 100'000, 4, 1'000}, 500).core_bytes_per_us, 1'000, 50);
}

TEST(LinkProbe, FindsTheSame_WhenTheOtherEndTakesTimeToPrepare) {
  for (const Link& cable : {Link{10, 100, 4, 0}, Link{10, 100'000, 4, 1'000}}) {
    const Link found = probed(cable, 0, 2'000);
    EXPECT_NEAR(found.bytes_per_us, probed(cable).bytes_per_us, 1);
    EXPECT_NEAR(found.core_bytes_per_us, cable.core_bytes_per_us, 0.05 * cable.core_bytes_per_us);
    EXPECT_NEAR(found.latency_us, cable.latency_us, 0.1);
  }
}

using LinkProbing = testing_support::BetweenHosts;

TEST_F(LinkProbing, TellsRankZeroTheSlowestLink_WithEvenlyAndOddlyManyHosts) {
  for (const std::vector<int>& hosts : {std::vector{0, 1}, std::vector{0, 0, 1, 2}}) {
    run_forked(
        static_cast<int>(hosts.size()),
        [](Communicator& comm) {
          const auto probe = probe_links(Access::group(comm));
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

TEST_F(LinkProbing, EveryRankHasTheSameTopologyOfRoundNumbers) {
  run_forked(
      4,
      [](Communicator& comm) {
        const Link link = Access::context(comm).facts->between;
        require(link == rounded(link), "round");
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

TEST_F(LinkProbing, HostsOnOneMachineShareItsCores) {
  run_forked(
      4,
      [](Communicator& comm) {
        const transport::Transport& transport = *Access::context(comm).transport;
        require(transport.ranks_of_machine() == 4, "all four run here");
        require(cores_a_rank(transport) == std::min(launch::host_cores() / 2.0, launch::machine_cores() / 4.0), "each");
        const Host host = parse_topology(comm.topology()).hosts[0];
        require(host.cores == std::max(1, std::min(launch::host_cores(), launch::machine_cores() / 2)), "half of them");
        require((host.ranks > host.cores) == (cores_a_rank(transport) < 1), "ranks take turns in both");
      },
      testing_support::on_hosts({0, 0, 1, 1}));
}

TEST_F(LinkProbing, HasNothingToMeasureOnOneHost) {
  run_forked(2, [](Communicator& comm) { require(!probe_links(Access::group(comm)), "one host has no links"); });
}

}  // namespace
}  // namespace herd::comm
