#include "herd/measure/figures.h"

#include <gtest/gtest.h>

namespace herd::measure {
namespace {

TEST(Figures, RoundsSoThatNoiseDoesNotShow) {
  EXPECT_DOUBLE_EQ(rounded(108), 100);
  EXPECT_DOUBLE_EQ(rounded(117.7), 125);
  EXPECT_DOUBLE_EQ(rounded(0.032), 0.0315);
  EXPECT_DOUBLE_EQ(rounded(9.2), 10);
  EXPECT_EQ(rounded(0), 0);
  const Link link = rounded(link_of({.short_us = 52, .long_us = 8'600, .long_bytes = 1 << 20}));
  EXPECT_EQ(link, (Link{50, 125}));
  EXPECT_EQ(rounded(link_of({.short_us = 47, .long_us = 8'350, .long_bytes = 1 << 20})), link);
}

TEST(Figures, CoresLimitALinkWhereBothWaysTakeAQuarterLongerThanOne) {
  LinkProbe probe{.short_us = 10, .message_us = 4, .long_us = 1'010, .both_us = 1'260, .long_bytes = 1'000'000};
  EXPECT_EQ(link_of(probe), (Link{10, 1'000, 4, 0}));  // 1250 us are not above 1.25 of 1000
  probe.both_us = 2'010;
  EXPECT_EQ(link_of(probe), (Link{10, 1'000, 4, 1'000}));
  probe.message_us = 12;  // the latency holds it
  EXPECT_EQ(link_of(probe).message_us, 10);
}

// Pieces of 1000 bytes that pass a link of 100 bytes a us: so many at 1000, the rest at the link's rate.
StreamProbe stream(int early, int pieces, double late_us = 0) {
  StreamProbe stream{.piece_bytes = 1'000};
  double us = late_us;
  for (int piece = 0; piece < pieces; ++piece) stream.us.push_back(us += piece < early ? 1 : 10);
  return stream;
}

TEST(Figures, FindsTheBurstThatALinkLetsPass) {
  const Link link{10, 100, 4};
  const Link found = with_burst(link, stream(10, 40));
  EXPECT_NEAR(found.burst_bytes, 9'000, 1e-6);  // 10000 in 10 us, which carry 1000
  EXPECT_NEAR(found.burst_bytes_per_us, 1'000, 1e-6);
  EXPECT_EQ(found.bytes_per_us, 100);
  EXPECT_NEAR(with_burst({10, 95, 4}, stream(10, 40)).burst_bytes, 9'050, 1e-6);  // a rate that was taken for too low
  EXPECT_NEAR(with_burst(link, stream(10, 40, 30)).burst_bytes, 6'000, 1e-6);     // an interruption hides some
}

TEST(Figures, FindsNoBurst_WhereThereIsNone) {
  const Link link{10, 100, 4};
  EXPECT_EQ(with_burst(link, stream(0, 40)), link);
  EXPECT_EQ(with_burst(link, stream(40, 40)), link);         // the rate was too low, or the burst has no end
  EXPECT_EQ(with_burst(link, stream(10, 40, 1'000)), link);  // interrupted for longer than that
  EXPECT_EQ(with_burst({10, 60, 4}, stream(0, 40)), (Link{10, 60, 4}));  // the rate was far too low
  EXPECT_EQ(with_burst(link, {}), link);
}

TEST(Figures, TheSlowerOfTwoLinksHasTheGreaterTimesAndTheLesserRates) {
  EXPECT_EQ(slower({10, 2'000, 1, 500}, {5, 1'000, 4, 600}), (Link{10, 1'000, 4, 500}));
  EXPECT_EQ(slower({10, 2'000, 1, 0}, {5, 1'000, 4, 600}), (Link{10, 1'000, 4, 600}));  // 0: no limit
  EXPECT_EQ(slower({1, 10, 1, 0, 500, 80}, {1, 10, 1, 0, 900, 40}), (Link{1, 10, 1, 0, 500, 40}));
  EXPECT_EQ(slower({1, 10, 1, 0, 500, 80}, {1, 10, 1, 0}), (Link{1, 10, 1, 0}));  // no burst
}

TEST(Figures, ASecondHalfThatWasThereAlreadyTookNoLessThanHalfOfTheWhole) {
  EXPECT_EQ(second_half_us(1'000, 700), 700);
  EXPECT_EQ(second_half_us(1'000, 3), 500);  // the receiver was interrupted while the first half came
}

// Two ranks that copy 500,000 bytes in so many microseconds, and so many times as long past the cache.
MemoryProbe memory_probe(double copy_us, double past_cache) {
  return {2, 500'000, copy_us, copy_us, past_cache * copy_us, past_cache * copy_us};
}

TEST(Figures, AHostHasTheRatesThatItsRanksMeasured) {
  const Host host = with_memory(Host{.cores = 2}, memory_probe(10, 4));
  EXPECT_EQ(host.cores, 2);
  EXPECT_EQ(host.cached_core_bytes_per_us, 100'000);
  EXPECT_EQ(host.cached_bytes_per_us, 200'000);
  EXPECT_EQ(host.core_bytes_per_us, 31'500);  // 10^6 bytes in 40 us
  EXPECT_EQ(host.memory_bytes_per_us, 63'000);
  EXPECT_EQ(host.peer_write_factor, Host{}.peer_write_factor);
}

TEST(Figures, AHostIsTheSame_WhenItsRanksMeasureAThirdMoreOrLess) {
  const Host host = with_memory({}, memory_probe(10, 4));
  for (const double noise : {0.7, 0.9, 1.1, 1.3}) {
    EXPECT_EQ(with_memory({}, memory_probe(10 * noise, 4)), host) << noise;
    EXPECT_EQ(with_memory({}, memory_probe(10, 4 * noise)), host) << noise;
  }
}

}  // namespace
}  // namespace herd::measure
