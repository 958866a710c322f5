#include "herd/schedule/cost.h"

#include <gtest/gtest.h>

#include "herd/schedule/builder.h"
#include "herd/schedule/draw_schedule.h"
#include "herd/topology/presets.h"
#include "tests/collectives/all_algorithms.h"

namespace herd::testing_support {
namespace {

double time_of(const char* algorithm, const CollectiveRequest& request, const Topology& topology) {
  return time_schedules(build_all_ranks(algorithm, request), topology).end_us;
}

TEST(Cost, ARingBetweenHostsIsBoundByItsUplinks) {
  // 4 hosts of one rank, 64 MiB: 2 (n-1)/n S over 1250 bytes/us, while latencies and copies vanish beside it.
  const CollectiveRequest request{
      .collective = Collective::kAllReduce, .num_ranks = 4, .elements = 16 << 20, .in_place = true};
  const double bound = 2.0 * 3 / 4 * (64 << 20) / 1250;
  const double predicted = time_of("ring", request, spine_leaf(4, Host{}));
  EXPECT_GT(predicted, bound);
  EXPECT_LT(predicted, 1.5 * bound);
  EXPECT_GT(time_of("ring", request, spine_leaf(4, Host{}, 4)), 3 * bound);  // all share a quarter of the spine
}

TEST(Cost, SmallMessagesBetweenHostsAreBoundByLatency) {
  const CollectiveRequest request{
      .collective = Collective::kAllReduce, .num_ranks = 4, .elements = 4, .in_place = true};
  const double predicted = time_of("ring", request, spine_leaf(4, Host{}));
  EXPECT_GT(predicted, 6 * 15);
  EXPECT_LT(predicted, 6 * 16);
}

TEST(Cost, MoreRanksThanCoresShareTheCores) {
  const CollectiveRequest request{
      .collective = Collective::kAllReduce, .num_ranks = 4, .elements = 1 << 16, .in_place = true};
  const auto with_cores = [&](int cores) {
    Topology topology = one_host(4, cores);
    topology.hosts[0].cached_bytes_per_us = 1e6;  // no limit
    topology.hosts[0].turn_us = 0;
    return time_of("direct_push", request, topology);
  };
  EXPECT_GT(with_cores(2), 1.9 * with_cores(4));
  EXPECT_LT(with_cores(2), 2.0 * with_cores(4));
}

// Ranks 0 and 1 share a core, 2 and 3 the other one. Time passes from the first rank's begin on.
TEST(Cost, RanksThatShareCoresTakeTurns) {
  Topology host = one_host(4, 2);
  host.hosts[0].turn_us = 10;
  host.hosts[0].signal_us = host.hosts[0].step_us = host.hosts[0].message_us = 0;
  const auto turns = [&](const char* algorithm, Collective collective) {
    const CollectiveRequest request{
        .collective = collective, .num_ranks = 4, .elements = 4, .direct = true, .same_host = true};
    return time_of(algorithm, request, host) / 10;
  };
  // Rank 1 sends in its turn, then the root has it again.
  EXPECT_NEAR(turns("linear", Collective::kGather), 2, 0.1);
  // Rank 2 waits, 3 looks for what 2 has not sent yet, 2 passes it on, 3 has it.
  EXPECT_NEAR(turns("binomial", Collective::kBroadcast), 3, 0.1);
  // Who has begun gives the core away and gets it back; what the second round waits for has come meanwhile.
  EXPECT_NEAR(turns("dissemination_signal", Collective::kBarrier), 2, 0.1);
}

// Exact: a core a rank, no latency, a rate of 1000 bytes/us for a core and none for the cache.
Topology plain_host(int ranks) {
  Topology topology = one_host(ranks, ranks);
  Host& host = topology.hosts[0];
  host.cached_core_bytes_per_us = 1000;
  host.cached_bytes_per_us = 1e9;
  host.signal_us = host.step_us = 0;
  host.peer_write_factor = host.shared_write_factor = 1;
  return topology;
}

// In symmetric memory, each rank's half 40,000 bytes.
const CollectiveRequest kDirectAllReduce{.collective = Collective::kAllReduce,
                                         .num_ranks = 2,
                                         .elements = 20'000,
                                         .in_place = true,
                                         .direct = true,
                                         .same_host = true};

TEST(Cost, BytesOfPeersAndOfTheStageCountByTheirFactors_InTheCache) {
  const CollectiveRequest request{
      .collective = Collective::kAllGather, .num_ranks = 2, .elements = 20'000, .direct = true, .same_host = true};
  Topology topology = plain_host(2);
  // Each rank copies its own 40,000 bytes and the peer's: 2 bytes moved for each.
  EXPECT_NEAR(time_of("direct_pull", request, topology), 160, 0.01);
  topology.hosts[0].peer_read_factor = 3;
  EXPECT_NEAR(time_of("direct_pull", request, topology), 240, 0.01);
  EXPECT_NEAR(time_of("direct_push", request, topology), time_of("direct_push", request, plain_host(2)), 0.01);
  topology.hosts[0].call_us = 5;
  EXPECT_NEAR(time_of("direct_pull", request, topology), 245, 0.01);
  topology = plain_host(2);
  const double staged = time_of("staged", request, topology);
  topology.hosts[0].stage_read_factor = 2;  // the peer's 40,000 bytes, once
  EXPECT_NEAR(time_of("staged", request, topology), staged + 40, 0.01);
}

TEST(Cost, ATargetThatTheStepHasReadIsNoWriteToAPeersLines) {
  CollectiveRequest request = kDirectAllReduce;
  Topology topology = plain_host(2);
  topology.hosts[0].peer_write_factor = 3;
  // Each rank reads two halves of 40,000 bytes and writes two.
  EXPECT_NEAR(time_of("direct_push", request, topology), 160, 0.01);
  request.in_place = false;
  EXPECT_NEAR(time_of("direct_push", request, topology), 240, 0.01);
}

TEST(Cost, OwnMemoryThatAPeerHasReadIsNoOwnMemoryToWrite) {
  const CollectiveRequest& request = kDirectAllReduce;
  Topology topology = plain_host(2);
  // Two halves of 40,000 bytes are read and one written where it was read; then the peer's half is copied.
  EXPECT_NEAR(time_of("direct_pull", request, topology), 200, 0.01);
  topology.hosts[0].shared_write_factor = 3;  // the peer has read the half that its sum is copied to
  EXPECT_NEAR(time_of("direct_pull", request, topology), 280, 0.01);
  EXPECT_NEAR(time_of("direct_push", request, topology), 160, 0.01);
}

TEST(Cost, OwnMemoryIsSharedWhereverAPeerHasReadIt_AlsoBesideSmallerReads) {
  const auto rank = [](Rank self, const auto& steps) {
    Schedule header;
    header.collective = Collective::kAllReduce;
    header.num_ranks = 3;
    header.self = self;
    header.elements = 20'000;
    header.in_place = true;
    Builder builder(header);
    steps(builder);
    return builder.finish();
  };
  const auto reads = [](Range range) {
    return [range](Builder& b) { b.copy(b.output(range, 0), {b.scratch(range.size())}); };
  };
  const std::vector<Schedule> all = {rank(0,
                                          [](Builder& b) {
                                            b.copy(b.scratch(1000), {b.output({5000, 6000})});
                                          }),
                                     rank(1, reads({0, 10'000})), rank(2, reads({1000, 2000}))};
  Topology topology = plain_host(3);
  EXPECT_NEAR(time_schedules(all, topology).steps[0][0].end_us, 8, 0.01);  // 4000 bytes read and written
  topology.hosts[0].shared_write_factor = 3;
  EXPECT_NEAR(time_schedules(all, topology).steps[0][0].end_us, 16, 0.01);
}

TEST(Cost, AMessageOnAHostTakesItsTimeAndItsBytesInTheRings) {
  CollectiveRequest request{
      .collective = Collective::kAllGather, .num_ranks = 2, .elements = 20'000, .same_host = true};
  Topology topology = plain_host(2);
  // Each rank copies, sends and receives 40,000 bytes.
  EXPECT_NEAR(time_of("ring", request, topology), 240, 0.01);
  topology.hosts[0].message_factor = 3;
  EXPECT_NEAR(time_of("ring", request, topology), 400, 0.01);
  request.collective = Collective::kBroadcast;
  request.elements = 1;
  const double empty = time_of("binomial", request, topology);
  topology.hosts[0].message_us = 7;
  EXPECT_NEAR(time_of("binomial", request, topology), empty + 7, 0.01);
}

// Two hosts of one rank, nothing but this uplink takes time.
Topology joined_by(const Link& uplink) {
  Host host;
  host.cached_core_bytes_per_us = host.cached_bytes_per_us = host.core_bytes_per_us = host.memory_bytes_per_us = 1e12;
  host.step_us = 0;
  host.uplink = uplink;
  return spine_leaf(2, host);
}

TEST(Cost, AMessageBetweenHostsCostsBothCores_InsideItsLatencyWhereItIsAlone) {
  const CollectiveRequest one_way{.collective = Collective::kBroadcast, .num_ranks = 2, .elements = 1},
      both_ways{.collective = Collective::kAllGather, .num_ranks = 2, .elements = 2};
  EXPECT_NEAR(time_of("binomial", one_way, joined_by({10, 1e9, 7, 0})), 10, 0.01);
  EXPECT_NEAR(time_of("ring", both_ways, joined_by({10, 1e9, 4, 0})), 10, 0.01);  // 4 + 4 hide in it
  EXPECT_NEAR(time_of("ring", both_ways, joined_by({10, 1e9, 7, 0})), 14, 0.01);  // each sends one and receives one
}

TEST(Cost, BytesBetweenHostsCostTheCoresThatPassThem) {
  const CollectiveRequest one_way{.collective = Collective::kBroadcast, .num_ranks = 2, .elements = 200'000},
      both_ways{.collective = Collective::kAllGather, .num_ranks = 2, .elements = 400'000};
  // 800,000 bytes each way. One way they are received an eighth later than they are sent.
  EXPECT_NEAR(time_of("binomial", one_way, joined_by({10, 1e9, 0, 1'000})), 800 + 100 + 10, 0.1);
  EXPECT_NEAR(time_of("binomial", one_way, joined_by({10, 100, 0, 1'000})), 8'000 + 100 + 10, 0.1);  // the link's time
  const double both = time_of("ring", both_ways, joined_by({10, 1e9, 0, 1'000}));
  EXPECT_GE(both, 1'600);
  EXPECT_LE(both, 1'600 + 100 + 10);
}

// 100 bytes a us; bursts of 10,000 pass at 1000.
double burst_us(int64_t bytes) {
  const CollectiveRequest request{.collective = Collective::kBroadcast, .num_ranks = 2, .elements = bytes / 4};
  return predict_us("binomial", request, joined_by({0, 100, 0, 0, 10'000, 1'000}));
}

TEST(Cost, AnUplinkLetsPassInABurstWhatItSavedUpWhileItRested) {
  EXPECT_NEAR(burst_us(800), 4, 0.1);  // it rests for half of the time
  EXPECT_NEAR(burst_us(8'000), 40, 1);
  EXPECT_NEAR(burst_us(80'000), 700, 1);  // the burst, and the rest at the link's rate
}

TEST(Cost, AnUplinkSavesUpWhileAnOperationDoesSomethingElse) {
  // An all-reduce that goes one way and then back: each way carries something for a quarter of the time.
  const CollectiveRequest request{.collective = Collective::kAllReduce, .num_ranks = 2, .elements = 2'000};
  const Topology steady = joined_by({0, 100}), bursts = joined_by({0, 100, 0, 0, 10'000, 1e6});
  EXPECT_NEAR(predict_us("chain", request, steady), 160, 0.1);
  EXPECT_NEAR(predict_us("chain", request, bursts), 40, 2);
}

TEST(Cost, EveryScheduleHasTimesForEveryStep) {
  for (const AlgorithmInfo& info : every_algorithm()) {
    if (is_composition(info)) continue;
    const auto all = build_all_ranks(info.name, {.collective = info.collective, .num_ranks = 3, .elements = 100000});
    const ScheduleTimes times = time_schedules(all, one_host(3, 3));
    size_t steps = 0;
    for (Rank rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(times.steps[rank].size(), all[rank].steps.size());
      steps += all[rank].steps.size();
      for (const sim::TaskTime& time : times.steps[rank]) {
        EXPECT_LE(time.start_us, time.end_us);
        EXPECT_LE(time.end_us, times.end_us);
      }
    }
    const ScheduleTimes oversubscribed = time_schedules(all, one_host(3, 2));
    double last = 0;
    for (const auto& row : oversubscribed.steps) {
      for (const sim::TaskTime& time : row) last = std::max(last, time.end_us);
    }
    EXPECT_GT(last, 0) << info.name;
    EXPECT_LE(last, oversubscribed.end_us) << info.name;
    const sim::Timeline timeline = timeline_of(all, times);
    EXPECT_EQ(timeline.spans.size(), steps);
    for (const sim::Arrow& link : timeline.arrows) EXPECT_LE(link.from_us, link.to_us) << info.name;
  }
}

}  // namespace
}  // namespace herd::testing_support
