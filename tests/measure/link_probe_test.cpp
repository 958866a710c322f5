#include "herd/measure/link_probe.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/measure/simulated_cable.h"

namespace herd::measure {
namespace {

// What a probe of this cable finds; the rest as End has it, of the end that answers.
Link probed(const Link& cable, double interrupted_us = 0, double prepares_us = 0, double burst_bytes = 0) {
  testing_support::SimulatedCable simulated(cable, burst_bytes);
  std::thread other([&] {
    testing_support::SimulatedCable::End end(simulated, 1);
    end.interrupt_between_halves(interrupted_us);
    end.prepare_for(prepares_us);
    answer_probe(end);
  });
  testing_support::SimulatedCable::End end(simulated, 0);
  const Link link = time_link(end);
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
    answer_probe(end);
  });
  testing_support::SimulatedCable::End end(simulated, 0);
  end.receive_late(70, 100);
  const Link found = time_link(end);
  other.join();
  EXPECT_EQ(found.burst_bytes, 0) << found.burst_bytes_per_us;
}

TEST(LinkProbe, TakesAFewDozenLatencies_WhereTheyAreLong) {
  testing_support::SimulatedCable simulated({40'000, 1'250, 4, 0});
  std::thread other([&] {
    testing_support::SimulatedCable::End end(simulated, 1);
    answer_probe(end);
  });
  testing_support::SimulatedCable::End end(simulated, 0);
  EXPECT_NEAR(time_link(end).latency_us, 40'000, 1);
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

}  // namespace
}  // namespace herd::measure
