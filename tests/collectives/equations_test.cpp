// Every equation of the algorithms' headers, recomputed from the schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "herd/base/error.h"
#include "herd/collectives/aggregate_traffic.h"
#include "herd/schedule/traffic.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/collectives/sent_by_all_reduce.h"

namespace herd::testing_support {
namespace {

int ceil_log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// Message bytes S that n, and n's parts, divide.
CollectiveRequest request_for(Collective collective, int n) {
  return {.collective = collective, .num_ranks = n, .root = n / 2, .elements = 900LL * n};
}

int count(const Schedule& s, StepKind kind) {
  return static_cast<int>(
      std::count_if(s.steps.begin(), s.steps.end(), [kind](const Step& step) { return step.kind == kind; }));
}

int64_t sent_by_all(const std::vector<Schedule>& all) {
  int64_t bytes = 0;
  for (const Schedule& s : all) bytes += bytes_sent(s);
  return bytes;
}

class Equations : public testing::TestWithParam<int> {
 protected:
  const int n = GetParam();
  const int64_t S = 900LL * n * 4;  // bytes, fp32
  const int log = ceil_log2(n);
  const int p = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const bool power_of_two = p == n;
  int rounds(Collective collective, const char* algorithm) {
    return num_rounds(build_all_ranks(algorithm, request_for(collective, n)));
  }
  void expect_bytes(Collective collective, const char* algorithm, int64_t bytes) {
    for (const Schedule& s : build_all_ranks(algorithm, request_for(collective, n))) {
      EXPECT_EQ(bytes_sent(s), bytes) << algorithm << " n=" << n;
    }
  }
  void expect_each(Collective collective, const char* algorithm, int messages, int64_t bytes) {
    for (const Schedule& s : build_all_ranks(algorithm, request_for(collective, n))) {
      EXPECT_EQ(num_messages_and_signals(s), messages) << algorithm << " n=" << n;
      EXPECT_EQ(bytes_sent(s), bytes) << algorithm << " n=" << n;
    }
  }
};

TEST_P(Equations, RingAllReduceSends2nMinus1MessagesOfSOverN) {
  expect_each(Collective::kAllReduce, "ring", 2 * (n - 1), 2 * (n - 1) * S / n);
  for (const Schedule& s : build_all_ranks("ring", request_for(Collective::kAllReduce, n))) {
    EXPECT_EQ(count(s, StepKind::kReceiveReduce), n - 1);
    EXPECT_EQ(s.scratch_elements + s.stage_elements, 0);
  }
}

TEST_P(Equations, DirectAllReduceMoves2nMinus1OverNTimesS) {
  expect_each(Collective::kAllReduce, "direct_pull", 3 * (n - 1), 2 * (n - 1) * S / n);
  expect_each(Collective::kAllReduce, "direct_push", 2 * (n - 1), 2 * (n - 1) * S / n);
}

TEST_P(Equations, StagedAllReduceReadsAllStagesWhenSmall_AndTwoPassesWhenLarge) {
  if (n == 1) return;
  CollectiveRequest small{.collective = Collective::kAllReduce, .num_ranks = n, .elements = 100};
  for (const Schedule& s : build_all_ranks("staged", small)) {
    EXPECT_EQ(bytes_sent(s), (n - 1) * 400);
    EXPECT_EQ(num_messages_and_signals(s), n - 1);
    EXPECT_EQ(s.stage_elements, 100);
  }
  CollectiveRequest large{.collective = Collective::kAllReduce, .num_ranks = n, .elements = 1 << 20};
  const auto all = build_all_ranks("staged", large);
  const int pieces = 8;  // 4 MiB in pieces of 512 KiB
  for (const Schedule& s : all) {
    EXPECT_EQ(num_messages_and_signals(s), 2 * (n - 1) * pieces);
    const int64_t piece = (1 << 20) / pieces;
    EXPECT_EQ(s.stage_elements, 3 * (piece + (piece + n - 1) / n));
  }
  EXPECT_EQ(sent_by_all(all), 2LL * (n - 1) * (4 << 20));
}

TEST_P(Equations, AllGatherAndReduceScatterMoveNMinus1OverNTimesS) {
  const int64_t bytes = (n - 1) * S / n;
  expect_each(Collective::kAllGather, "ring", n - 1, bytes);
  expect_each(Collective::kAllGather, "direct_pull", 2 * (n - 1), bytes);
  expect_each(Collective::kAllGather, "direct_push", 2 * (n - 1), bytes);
  expect_each(Collective::kAllGather, "staged", n - 1, bytes);
  expect_each(Collective::kReduceScatter, "ring", n - 1, bytes);
  expect_each(Collective::kReduceScatter, "direct_pull", 2 * (n - 1), bytes);
  expect_each(Collective::kReduceScatter, "staged", n - 1, bytes);
}

TEST_P(Equations, BinomialTreesTakeCeilLog2Rounds) {
  const auto broadcast = build_all_ranks("binomial", request_for(Collective::kBroadcast, n));
  EXPECT_EQ(bytes_sent(broadcast[n / 2]), ceil_log2(n) * S);
  EXPECT_EQ(sent_by_all(broadcast), (n - 1) * S);
  const auto reduce = build_all_ranks("binomial", request_for(Collective::kReduce, n));
  EXPECT_EQ(count(reduce[n / 2], StepKind::kReceiveReduce), ceil_log2(n));
  for (const Schedule& s : reduce) EXPECT_EQ(bytes_sent(s), s.self == n / 2 ? 0 : S);
}

TEST_P(Equations, RootedDirectFormsReadWhatTheirHeadersSay) {
  int64_t pushed = 0;
  for (const Schedule& s : build_all_ranks("direct_push", request_for(Collective::kBroadcast, n))) {
    EXPECT_EQ(num_messages_and_signals(s), 2 * (n - 1));
    pushed += bytes_sent(s);
  }
  EXPECT_EQ(pushed,
            (n - 1) * S + (n - 1) * S / n);  // each part goes to n - 1 peers, and all but one are read from root
  for (const Schedule& s : build_all_ranks("direct_pull", request_for(Collective::kBroadcast, n))) {
    EXPECT_EQ(bytes_sent(s), s.self == n / 2 ? 0 : S);
  }
  for (const Schedule& s : build_all_ranks("direct_push", request_for(Collective::kReduce, n))) {
    EXPECT_EQ(bytes_sent(s), (n - 1) * S / n + (s.self == n / 2 ? 0 : S / n));
    EXPECT_EQ(num_messages_and_signals(s), 2 * (n - 1));
  }
  EXPECT_EQ(bytes_sent(build_all_ranks("staged", request_for(Collective::kReduce, n))[n / 2]), (n - 1) * S);
}

TEST_P(Equations, BarriersTakeCeilLog2RoundsOrOneAndMoveNothing) {
  expect_each(Collective::kBarrier, "dissemination_send", ceil_log2(n), 0);
  expect_each(Collective::kBarrier, "dissemination_signal", ceil_log2(n), 0);
  expect_each(Collective::kBarrier, "direct_signal", n - 1, 0);
  EXPECT_EQ(rounds(Collective::kBarrier, "direct_signal"), n > 1 ? 1 : 0);
}

TEST_P(Equations, StepsOfTheTableOfAllReduce) {
  const auto all_reduce = [&](const char* algorithm) { return rounds(Collective::kAllReduce, algorithm); };
  EXPECT_EQ(all_reduce("naive"), n > 1 ? 1 : 0);
  EXPECT_EQ(all_reduce("ring"), 2 * (n - 1));
  EXPECT_LE(all_reduce("double_tree"), 2 * (log + 1));
  const int folded = power_of_two ? 0 : 2;
  // Where n is no power of two some steps need nothing of those before them.
  const std::pair<const char*, int> at_most[] = {{"binomial_tree", 2 * log},
                                                 {"recursive_doubling", ceil_log2(p) + folded},
                                                 {"halving_doubling", 2 * ceil_log2(p) + folded},
                                                 {"circulant", 2 * log}};
  for (const auto& [algorithm, steps] : at_most) {
    EXPECT_LE(all_reduce(algorithm), steps) << algorithm;
    if (power_of_two) {
      EXPECT_EQ(all_reduce(algorithm), steps) << algorithm;
    }
  }
}

TEST_P(Equations, BytesOfTheTableOfAllReduce) {
  if (n == 1) return;
  expect_bytes(Collective::kAllReduce, "naive", (n - 1) * S);
  expect_bytes(Collective::kAllReduce, "circulant", 2 * (n - 1) * S / n);
  const auto tree = build_all_ranks("binomial_tree", request_for(Collective::kAllReduce, n));
  EXPECT_EQ(bytes_sent(tree[0]), log * S);
  EXPECT_EQ(sent_by_all(tree), 2 * (n - 1) * S);
  for (const Schedule& s : build_all_ranks("double_tree", request_for(Collective::kAllReduce, n))) {
    EXPECT_LE(bytes_sent(s), 2 * S) << "rank " << s.self;
  }
  if (power_of_two) {
    expect_bytes(Collective::kAllReduce, "recursive_doubling", log * S);
    expect_bytes(Collective::kAllReduce, "halving_doubling", 2 * (n - 1) * S / n);
  }
  for (const Schedule& s : build_all_ranks("recursive_doubling", request_for(Collective::kAllReduce, n))) {
    EXPECT_LE(bytes_sent(s), (ceil_log2(p) + (power_of_two ? 0 : 1)) * S);
  }
}

TEST_P(Equations, SchedulesOfAllReduceSendWhatTheirEquationsSay) {
  std::vector<Placement> placements = placements_of(n);
  std::erase_if(placements, [](const Placement& placement) { return placement.hosts.empty(); });
  placements.push_back({});
  for (const Placement& placement : placements) {
    for (const int64_t elements : {36LL * n, 900LL * n}) {
      CollectiveRequest request{.collective = Collective::kAllReduce, .num_ranks = n, .elements = elements};
      request.hosts = placement.hosts, request.grid = placement.grid;
      for (const AlgorithmInfo& info : algorithms(Collective::kAllReduce)) {
        if (n == 1 || !serves(info, request)) continue;
        SCOPED_TRACE(title(info, request) + " " + describe(placement));
        const SentBytes sent = sent_by_all_reduce(info.name, request);
        const auto all = build_all_ranks(info.name, request);
        EXPECT_EQ(sent_by_all(all), sent.all);
        for (const Schedule& s : all) {
          if (sent.each) {
            EXPECT_EQ(bytes_sent(s), *sent.each);
          }
          EXPECT_LE(bytes_sent(s), sent.most);
        }
      }
    }
  }
}

TEST_P(Equations, TheViewOfAllWorkersCountsWhatSchedulesSend) {
  for (const AggregateTrafficRow& row : aggregate_traffic(n, S, 1250)) {
    if (row.algorithm.empty() || (row.pattern == "butterfly" && !power_of_two)) continue;
    const auto all = build_all_ranks(row.algorithm, request_for(Collective::kAllReduce, n));
    EXPECT_EQ(static_cast<double>(sent_by_all(all)), row.total_bytes) << row.pattern;
  }
}

TEST_P(Equations, LongMessagesGoDownTreesInSegmentsThatOverlap) {
  if (n == 1) return;
  CollectiveRequest request = request_for(Collective::kAllReduce, n);
  request.segment_bytes = S / 10;
  for (const char* algorithm : {"binomial_tree", "double_tree"}) {
    const auto all = build_all_ranks(algorithm, request);
    CollectiveRequest unsegmented = request;
    unsegmented.segment_bytes = S;
    const auto whole = build_all_ranks(algorithm, unsegmented);
    EXPECT_EQ(num_messages_and_signals(all[1]), 10 * num_messages_and_signals(whole[1]));
    EXPECT_EQ(bytes_sent(all[1]), bytes_sent(whole[1]));
    EXPECT_LE(num_rounds(all), 2 * (log + 1) + 4 * 10);
  }
  request.collective = Collective::kBroadcast;
  EXPECT_EQ(num_rounds(build_all_ranks("chain", request)), n - 1);
  for (const Schedule& s : build_all_ranks("chain", request)) {
    EXPECT_EQ(bytes_sent(s), s.self == (n / 2 + n - 1) % n ? 0 : S);
  }
}

TEST_P(Equations, LogarithmicAllGatherAndReduceScatter) {
  const int64_t bytes = (n - 1) * S / n;
  EXPECT_LE(rounds(Collective::kAllGather, "bruck"), log);
  expect_each(Collective::kAllGather, "bruck", log, bytes);
  EXPECT_LE(rounds(Collective::kAllGather, "circulant"), log);
  expect_bytes(Collective::kAllGather, "circulant", bytes);
  EXPECT_LE(rounds(Collective::kReduceScatter, "circulant"), log);
  expect_bytes(Collective::kReduceScatter, "circulant", bytes);
  expect_each(Collective::kReduceScatter, "pairwise", n - 1, bytes);
  const int folded = n > 1 && !power_of_two ? 2 : 0;
  EXPECT_LE(rounds(Collective::kAllGather, "recursive_doubling"), ceil_log2(p) + folded);
  EXPECT_LE(rounds(Collective::kReduceScatter, "halving"), ceil_log2(p) + folded);
  if (!power_of_two) return;
  expect_each(Collective::kAllGather, "recursive_doubling", log, bytes);
  expect_each(Collective::kReduceScatter, "halving", log, bytes);
}

TEST_P(Equations, LongBroadcastsSendLessThanTwiceTheMessage) {
  for (const Schedule& s : build_all_ranks("scatter_all_gather", request_for(Collective::kBroadcast, n))) {
    EXPECT_LE(bytes_sent(s), 2 * S);
  }
  EXPECT_LE(rounds(Collective::kBroadcast, "scatter_all_gather"), n == 1 ? 0 : log + n - 1);
}

TEST_P(Equations, AllReduceIsTheReduceScatterAndAllGatherOfItsKind) {
  if (n == 1) return;
  for (const char* algorithm : {"ring", "circulant"}) {
    CollectiveRequest request = request_for(Collective::kAllReduce, n);
    request.in_place = true;
    const auto all_reduce = build_all_ranks(algorithm, request);
    request.collective = Collective::kReduceScatter;
    const auto reduce_scatter = build_all_ranks(algorithm, request);
    request.collective = Collective::kAllGather;
    const auto all_gather = build_all_ranks(algorithm, request);
    EXPECT_LE(num_rounds(all_reduce), num_rounds(reduce_scatter) + num_rounds(all_gather));
    for (Rank rank = 0; rank < n; ++rank) {
      std::vector<Step> both = reduce_scatter[rank].steps;
      both.insert(both.end(), all_gather[rank].steps.begin(), all_gather[rank].steps.end());
      EXPECT_EQ(both, all_reduce[rank].steps) << algorithm;
    }
  }
}

TEST_P(Equations, GatherAndScatterMoveEachPartOnceOrUpTheTree) {
  const int64_t part = S / n;
  for (const Collective collective : {Collective::kGather, Collective::kScatter}) {
    const bool gathers = collective == Collective::kGather;
    const auto linear = build_all_ranks("linear", request_for(collective, n));
    EXPECT_EQ(sent_by_all(linear), (n - 1) * part);
    for (const Schedule& s : linear) {
      EXPECT_EQ(bytes_sent(s), (s.self == n / 2) == gathers ? 0 : gathers ? part : (n - 1) * part);
    }
    const auto direct = build_all_ranks(gathers ? "direct_push" : "direct_pull", request_for(collective, n));
    for (const Schedule& s : direct) EXPECT_EQ(bytes_sent(s), s.self == n / 2 ? 0 : part);
    EXPECT_EQ(sent_by_all(build_all_ranks("staged", request_for(collective, n))), (n - 1) * part);
    // Each part travels as many hops as its rank's place in the tree has bits.
    int64_t hops = 0;
    for (int place = 0; place < n; ++place) hops += std::popcount(static_cast<unsigned>(place));
    EXPECT_EQ(sent_by_all(build_all_ranks("binomial", request_for(collective, n))), hops * part);
  }
}

TEST_P(Equations, AllToAllMovesNMinus1BlocksOrLogNTimesHalfTheMessage) {
  const int64_t block = S / n;
  expect_each(Collective::kAllToAll, "pairwise", n - 1, (n - 1) * block);
  expect_each(Collective::kAllToAll, "direct_pull", 2 * (n - 1), (n - 1) * block);
  expect_each(Collective::kAllToAll, "staged", n - 1, (n - 1) * block);
  int64_t moved = 0;  // block i moves once for every bit of i
  for (int i = 0; i < n; ++i) moved += std::popcount(static_cast<unsigned>(i));
  expect_each(Collective::kAllToAll, "bruck", ceil_log2(n), moved * block);
  EXPECT_LE(moved * block, S / 2 * ceil_log2(n));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Equations, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

TEST(Registry, NamesTheAlgorithmsThereAre) {
  try {
    build_schedule("rings", {.collective = Collective::kAllReduce});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(
        error.message().find("no algorithm \"rings\"\n  fix: one of ring, direct_pull, direct_push, staged, naive"),
        std::string::npos);
  }
}

TEST(Registry, SaysWhyAnAlgorithmCannotServeARequest) {
  try {
    build_schedule("direct_pull", {.collective = Collective::kAllReduce, .num_ranks = 2});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("all_reduce by \"direct_pull\" needs buffers in symmetric memory"),
              std::string::npos);
  }
}

TEST(Registry, RefusesSegmentsWhereAnAlgorithmHasNone_AndNamesThoseThatHave) {
  try {
    build_schedule("ring", {.collective = Collective::kAllReduce, .num_ranks = 2, .elements = 9, .segment_bytes = 4});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "all_reduce by \"ring\" has no segments, but 4 bytes are asked for\n  fix: no segment size, or an "
              "algorithm that has some: binomial_tree, double_tree, chain, mesh_2d");
  }
}

TEST(Registry, TellsTheAlgorithmsThatHaveSegments) {
  int with_segments = 0;
  for (const AlgorithmInfo& info : every_algorithm()) {
    CollectiveRequest request{.collective = info.collective, .num_ranks = 8, .elements = 1 << 16};
    if (is_composition(info)) request = composition_request(info);
    request.elements = 1 << 16;
    const auto steps = [&] { return build_all_ranks(info.name, request)[1].steps.size(); };
    const size_t before = steps();
    request.segment_bytes = 64;
    if (info.has_segments) {
      EXPECT_GT(steps(), before) << collective_name(info.collective) << " " << info.name;
      ++with_segments;
    } else {
      EXPECT_THROW(steps(), Error) << collective_name(info.collective) << " " << info.name;
    }
  }
  EXPECT_EQ(with_segments, 5);
}

TEST(Registry, ARankBuildsItsOwnStepsOfAVeryLargeWorld) {
  const Schedule s = build_schedule(
      "ring", {.collective = Collective::kAllReduce, .self = 9000, .num_ranks = 16384, .elements = 1LL << 30});
  EXPECT_EQ(bytes_sent(s), 2LL * 16383 * (1LL << 30) * 4 / 16384);
}

}  // namespace
}  // namespace herd::testing_support
