#include "herd/collectives/choose.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>

#include "herd/base/error.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/traffic.h"
#include "herd/topology/presets.h"

namespace herd {
namespace {

using testing::HasSubstr;

CollectiveRequest all_reduce(int ranks, int64_t bytes) {
  return {.collective = Collective::kAllReduce,
          .num_ranks = ranks,
          .elements = bytes / 4,
          .in_place = true,
          .direct = true,
          .same_host = true};
}

TEST(Choose, PushesIntoLinesThatAreTakenOver) {
  EXPECT_EQ(choose(all_reduce(2, 1 << 20), one_host(2, 2)).algorithm, "direct_push");
  CollectiveRequest elsewhere = all_reduce(2, 1 << 20);
  elsewhere.in_place = false;
  EXPECT_EQ(choose(elsewhere, one_host(2, 2)).algorithm, "direct_push");
  const Choice large = choose(all_reduce(2, 64 << 20), one_host(2, 2));
  EXPECT_EQ(large.algorithm, "direct_push");
  EXPECT_THAT(large.reason, HasSubstr("direct_push: "));
  EXPECT_THAT(large.reason, HasSubstr("busiest: memory 100 %"));
}

TEST(Choose, TakesStagesForOrdinaryMemoryOfOneHost) {
  CollectiveRequest request = all_reduce(4, 64 << 20);
  request.direct = false;
  const Choice choice = choose(request, one_host(4, 2));
  EXPECT_EQ(choice.algorithm, "staged");
  EXPECT_EQ(choice.candidates.size(), algorithms(Collective::kAllReduce).size());
  for (const Candidate& c : choice.candidates) {
    if (c.algorithm.name != "direct_pull") continue;
    EXPECT_EQ(c.why_not, "needs buffers in symmetric memory");
  }
}

// Every time that a rank waits there, it gives its core to another one.
TEST(Choose, WaitsOnceForSmallMessages_WhereRanksOutnumberCores) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllToAll}) {
    CollectiveRequest request = all_reduce(4, 4 << 10);
    request.collective = collective;
    request.in_place = collective == Collective::kAllReduce;
    EXPECT_EQ(choose(request, one_host(4, 2)).algorithm, "staged") << collective_name(collective);
    request.elements *= 64;
    EXPECT_NE(choose(request, one_host(4, 2)).algorithm, "staged") << collective_name(collective);
  }
}

TEST(Choose, TimesMessagesInsideAHostOnlyWhenAsked) {
  const Choice plain = choose(all_reduce(4, 1 << 20), one_host(4, 2));
  const Choice all = choose(all_reduce(4, 1 << 20), one_host(4, 2), {.time_all = true});
  EXPECT_EQ(plain.algorithm, all.algorithm);
  const auto find = [](const Choice& choice, std::string_view name) {
    for (const Candidate& c : choice.candidates) {
      if (c.algorithm.name == name) return c;
    }
    return Candidate{};
  };
  EXPECT_GT(find(plain, "ring").us, 0);
  EXPECT_EQ(find(plain, "recursive_doubling").us, 0);
  EXPECT_GT(find(all, "recursive_doubling").us, 0);
  EXPECT_EQ(find(all, "recursive_doubling").why_not, "inside a host its memory serves better");
}

Topology two_hosts_of_two(double bytes_per_us) {
  Host host;
  host.ranks = host.cores = 2;
  host.uplink = {50, bytes_per_us};
  return spine_leaf(2, host);
}

CollectiveRequest between_hosts(Collective collective, int ranks, int64_t bytes) {
  return {.collective = collective, .num_ranks = ranks, .elements = bytes / 4, .in_place = true};
}

double predicted(const Choice& choice, std::string_view name) {
  for (const Candidate& c : choice.candidates) {
    if (c.algorithm.name == name && c.why_not.empty()) return c.us;
  }
  return 0;
}

TEST(Choose, PlacementPaysWhereTheWireIsSlow) {
  // 1 Gbit/s: S has to cross each uplink; a ring in block order sends 3/2 S there, a cyclic one 3 S.
  const CollectiveRequest request = between_hosts(Collective::kAllReduce, 4, 64 << 20);
  const double wire_us = (64 << 20) / 125.0;
  const Choice block = choose(request, two_hosts_of_two(125));
  const Choice cyclic = choose(request, placed_cyclically(two_hosts_of_two(125)));
  EXPECT_GT(predicted(block, "ring") / block.candidates[0].us, 1.3) << block.reason;
  EXPECT_GT(predicted(cyclic, "ring") / cyclic.candidates[0].us, 2.4) << cyclic.reason;
  EXPECT_TRUE(predicted(cyclic, cyclic.algorithm) <= predicted(cyclic, "hierarchical"));
  for (const Choice& choice : {block, cyclic}) {
    EXPECT_GT(choice.candidates[0].us, wire_us);
    EXPECT_LT(choice.candidates[0].us, 1.1 * wire_us) << choice.reason;
  }
}

TEST(Choose, TakesTheFewestStepsForTheShortestMessages) {
  const Choice choice =
      choose(between_hosts(Collective::kAllReduce, 8, 64), spine_leaf(8, Host{}), {.count_rounds = true});
  int fewest = 1000, chosen = 0;
  for (const Candidate& c : choice.candidates) {
    if (!c.why_not.empty()) continue;
    fewest = std::min(fewest, c.rounds);
    if (c.algorithm.name == choice.algorithm) chosen = c.rounds;
  }
  EXPECT_EQ(fewest, 1);
  EXPECT_LE(chosen, 3) << choice.reason;
}

TEST(Choose, ReportsEachAlgorithmBeforeItIsTimed) {
  std::vector<std::string> reported;
  const Choice choice = choose(between_hosts(Collective::kAllReduce, 8, 64), spine_leaf(8, Host{}),
                               {.report = [&](std::string_view algorithm) { reported.emplace_back(algorithm); }});
  std::vector<std::string> timed;
  for (const Candidate& c : choice.candidates) {
    if (c.us > 0) timed.emplace_back(c.algorithm.name);
  }
  EXPECT_GT(timed.size(), 3u);
  EXPECT_THAT(reported, testing::UnorderedElementsAreArray(timed));
}

TEST(Choose, SaysWhatLeavesAHost) {
  const Choice choice = choose(between_hosts(Collective::kAllReduce, 4, 1 << 20), two_hosts_of_two(125));
  for (const Candidate& c : choice.candidates) {
    if (c.algorithm.name != "hierarchical") continue;
    ASSERT_EQ(c.bytes_by_distance.size(), 2u);
    EXPECT_EQ(c.bytes_by_distance[1], 1 << 19);  // 2 (h-1)/h * S/m with h = m = 2
  }
}

TEST(Choose, AMeshTakesChainsAndATorusTakesRings) {
  const CollectiveRequest request = between_hosts(Collective::kAllReduce, 16, 256 << 10);
  const Choice on_torus = choose(request, torus_network({4, 4}, Host{})),
               on_mesh = choose(request, mesh_network({4, 4}, Host{}));
  EXPECT_LT(predicted(on_torus, "torus_2d"), predicted(on_torus, "ring"));
  EXPECT_LT(predicted(on_torus, "torus_2d"), predicted(on_mesh, "torus_2d"));
  EXPECT_NEAR(predicted(on_mesh, "mesh_2d"), predicted(on_torus, "mesh_2d"), 1);
}

TEST(Choose, AnswersForAWorldOfSixteenThousand) {
  Host host;
  host.ranks = 8;
  const auto start = std::chrono::steady_clock::now();
  const Choice choice = choose(between_hosts(Collective::kAllReduce, 16384, 256 << 20), racks(32, 64, host, 4));
  EXPECT_EQ(choice.algorithm, "hierarchical") << choice.reason;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Choose, IsDeterministic) {
  for (const int64_t bytes : {4 << 10, 1 << 20, 64 << 20}) {
    const Choice a = choose(all_reduce(3, bytes), one_host(3, 2)), b = choose(all_reduce(3, bytes), one_host(3, 2));
    ASSERT_EQ(a.candidates.size(), b.candidates.size());
    for (size_t i = 0; i < a.candidates.size(); ++i) EXPECT_EQ(a.candidates[i].us, b.candidates[i].us);
  }
}

TEST(Choose, AnswersForManyRanksWithoutSimulatingThemAll) {
  Host host;
  host.ranks = 8;
  CollectiveRequest request = all_reduce(1024, 256 << 20);
  request.direct = request.same_host = false;
  EXPECT_EQ(choose(request, spine_leaf(128, host)).algorithm, "hierarchical");
}

TEST(Choose, PricesEveryCollectiveOfManyHosts) {
  Host host;
  host.ranks = 8;
  for (const bool bursts : {false, true}) {
    if (bursts) host.uplink.burst_bytes = 128 << 10, host.uplink.burst_bytes_per_us = 10'000;
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                        Collective::kBroadcast, Collective::kReduce, Collective::kBarrier,
                                        Collective::kGather, Collective::kScatter, Collective::kAllToAll}) {
      const CollectiveRequest request{
          .collective = collective, .num_ranks = 64, .elements = collective == Collective::kBarrier ? 0 : 1 << 18};
      for (const Candidate& c : choose(request, spine_leaf(8, host)).candidates) {
        if (!c.why_not.empty()) continue;
        EXPECT_TRUE(std::isfinite(c.us) && c.us >= host.uplink.latency_us)
            << collective_name(collective) << " " << c.algorithm.name << ": " << c.us << " us";
      }
    }
  }
}

TEST(Choose, EndsOnASlowLinkThatLetsFastBurstsPass) {
  Host host;
  host.ranks = 2;
  host.uplink = {.latency_us = 15, .bytes_per_us = 12.5, .burst_bytes = 128 << 10, .burst_bytes_per_us = 2'000};
  CollectiveRequest request = all_reduce(8, 1 << 20);
  request.direct = request.same_host = false;
  for (const Candidate& c : choose(request, spine_leaf(4, host)).candidates) {
    if (!c.why_not.empty()) continue;
    EXPECT_GT(c.us, (1 << 20) / 12.5 / 2) << c.algorithm.name;
  }
}

TEST(Choose, PricesManyPiecesByTheLineThroughFewer) {
  // 32 MiB is 64 pieces of 512 KiB; each costs a rank two signals to every peer.
  CollectiveRequest request = all_reduce(64, 32 << 20);
  request.direct = false;
  for (const Candidate& c : choose(request, one_host(64, 2)).candidates) {
    if (c.algorithm.name != "staged") continue;
    request.self = 0;
    const Schedule s = build_schedule("staged", request);
    EXPECT_EQ(c.messages, num_messages_and_signals(s));
    EXPECT_NEAR(static_cast<double>(c.bytes_sent), static_cast<double>(bytes_sent(s)), 1e-3 * bytes_sent(s));
  }
}

TEST(Choose, CountsLongMessagesByTheLineThroughShorterOnes) {
  int counted = 0;
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kGather}) {
    for (const int n : {3, 4}) {
      CollectiveRequest request = all_reduce(n, (96 << 20) + 24);
      request.collective = collective;
      request.in_place = collective == Collective::kAllReduce;
      const ChooseOptions options{.time_all = true, .count_rounds = true};
      for (const Candidate& c : choose(request, one_host(n, n), options).candidates) {
        if (c.us <= 0) continue;
        ++counted;
        double bytes = 0;
        int messages = 0;
        std::vector<Schedule> all;
        for (request.self = 0; request.self < n; ++request.self) {
          all.push_back(build_schedule(c.algorithm.name, request));
          bytes = std::max(bytes, static_cast<double>(bytes_sent(all.back())));
          messages = std::max(messages, num_messages_and_signals(all.back()));
        }
        SCOPED_TRACE(testing::Message() << collective_name(collective) << " by " << c.algorithm.name << " of " << n);
        EXPECT_NEAR(static_cast<double>(c.bytes_sent), bytes, 1e-5 * bytes);
        EXPECT_NEAR(c.messages, messages, 0.1 * messages);  // the last piece may be short
        EXPECT_NEAR(c.rounds, num_rounds(all), 0.1 * num_rounds(all));
      }
    }
  }
  EXPECT_GT(counted, 20);
}

// In place it takes equal parts, and so do the shorter messages that tell of a long one.
TEST(Choose, PricesLongExchangesInPlaceOfAnyRanks) {
  for (const int n : {3, 5, 6, 33}) {
    CollectiveRequest request = all_reduce(n, int64_t{12} * 4 * 5 * 33 << 20);
    request.collective = Collective::kAllToAll;
    request.in_place = true;
    EXPECT_GT(choose(request, one_host(n, n)).candidates.size(), 1U) << n;
    request.counts.assign(static_cast<size_t>(n) * static_cast<size_t>(n), request.elements / n / n + 1);
    request.elements = elements_of_counts(request.collective, n, request.counts);
    EXPECT_GT(choose(request, one_host(n, n)).candidates.size(), 1U) << n;
  }
}

// A flat gradient of a large model: the steps of 1 TiB would fill the memory of the machine that asks.
TEST(Choose, AnswersForMessagesOfAnyLength) {
  const auto start = std::chrono::steady_clock::now();
  for (const Candidate& c : choose(all_reduce(8, int64_t{1} << 40), one_host(8, 2)).candidates) {
    if (c.algorithm.name == "ring") {
      EXPECT_NEAR(static_cast<double>(c.bytes_sent), 1.75 * (int64_t{1} << 40), 1e3);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Choose, PricesAlikeWhereSimulationEnds) {
  const Choice all = choose(all_reduce(kMaxSimulatedRanks, 64 << 20), one_host(kMaxSimulatedRanks, 2));
  const Choice one = choose(all_reduce(kMaxSimulatedRanks + 1, 64 << 20), one_host(kMaxSimulatedRanks + 1, 2));
  EXPECT_EQ(all.algorithm, one.algorithm);
  for (const Candidate& a : all.candidates) {
    for (const Candidate& b : one.candidates) {
      if (a.algorithm.name != b.algorithm.name || !a.why_not.empty()) continue;
      EXPECT_NEAR(b.us / a.us, 1, 0.25) << a.algorithm.name;
    }
  }
}

TEST(Choose, PricesTurnsAlikeWhereSimulationEnds) {
  const auto us = [](std::string_view algorithm, int ranks) {
    return predict_us(algorithm, all_reduce(ranks, 1 << 10), one_host(ranks, 2));
  };
  for (const char* algorithm : {"ring", "direct_push"}) {
    const double ratio = us(algorithm, kMaxSimulatedRanks + 1) / us(algorithm, kMaxSimulatedRanks);
    EXPECT_GT(ratio, 0.5) << algorithm;
    EXPECT_LT(ratio, 2) << algorithm;
  }
}

TEST(Choose, AnswersForThousandsOfRanksOfOneHost) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(choose(all_reduce(4096, 1 << 30), one_host(4096, 2)).algorithm, "direct_push");
  // Built step by step the staged schedule of one rank has 33 million steps, which takes 10 s and 8 GB.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

TEST(Choose, IgnoresTheRootOfWhatHasNone) {
  CollectiveRequest request = all_reduce(64, 1 << 20);
  request.root = 70;
  EXPECT_EQ(choose(request, one_host(64, 2)).algorithm, choose(all_reduce(64, 1 << 20), one_host(64, 2)).algorithm);
}

TEST(Choose, RefusesATopologyOfOtherRanks) {
  try {
    choose(all_reduce(3, 4), one_host(2, 2));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(), HasSubstr("has 2 ranks, but the collective has 3"));
  }
}

}  // namespace
}  // namespace herd
