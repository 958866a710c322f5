// Every equation of the algorithms' headers, recomputed from the schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "herd/base/error.h"
#include "herd/schedule/traffic.h"
#include "tests/collectives/all_algorithms.h"

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
  void expect_each(Collective collective, const char* algorithm, int messages, int64_t bytes) {
    for (const Schedule& s : build_all_ranks(algorithm, request_for(collective, n))) {
      EXPECT_EQ(num_messages(s), messages) << algorithm << " n=" << n;
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
    EXPECT_EQ(num_messages(s), n - 1);
    EXPECT_EQ(s.stage_elements, 100);
  }
  CollectiveRequest large{.collective = Collective::kAllReduce, .num_ranks = n, .elements = 1 << 20};
  const auto all = build_all_ranks("staged", large);
  const int pieces = 8;  // 4 MiB in pieces of 512 KiB
  for (const Schedule& s : all) {
    EXPECT_EQ(num_messages(s), 2 * (n - 1) * pieces);
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
  for (const Schedule& s : build_all_ranks("direct_pull", request_for(Collective::kBroadcast, n))) {
    EXPECT_EQ(bytes_sent(s), s.self == n / 2 ? 0 : S);
  }
  for (const Schedule& s : build_all_ranks("direct_push", request_for(Collective::kReduce, n))) {
    EXPECT_EQ(bytes_sent(s), (n - 1) * S / n + (s.self == n / 2 ? 0 : S / n));
    EXPECT_EQ(num_messages(s), 2 * (n - 1));
  }
  EXPECT_EQ(bytes_sent(build_all_ranks("staged", request_for(Collective::kReduce, n))[n / 2]), (n - 1) * S);
}

TEST_P(Equations, BarriersTakeCeilLog2RoundsAndMoveNothing) {
  expect_each(Collective::kBarrier, "dissemination_send", ceil_log2(n), 0);
  expect_each(Collective::kBarrier, "dissemination_signal", ceil_log2(n), 0);
}

TEST_P(Equations, AllReduceIsReduceScatterThenAllGather) {
  CollectiveRequest request = request_for(Collective::kAllReduce, n);
  request.in_place = true;
  const auto all_reduce = build_all_ranks("ring", request);
  request.collective = Collective::kReduceScatter;
  const auto reduce_scatter = build_all_ranks("ring", request);
  request.collective = Collective::kAllGather;
  const auto all_gather = build_all_ranks("ring", request);
  for (Rank rank = 0; rank < n; ++rank) {
    std::vector<Step> both = reduce_scatter[rank].steps;
    both.insert(both.end(), all_gather[rank].steps.begin(), all_gather[rank].steps.end());
    EXPECT_EQ(both, all_reduce[rank].steps);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Equations, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

TEST(Registry, NamesTheAlgorithmsThereAre) {
  try {
    build_schedule("rings", {.collective = Collective::kAllReduce});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(error.message().find("no algorithm \"rings\"\n  fix: one of ring, direct_pull, direct_push, staged"),
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

TEST(Registry, ARankBuildsItsOwnStepsOfAVeryLargeWorld) {
  const Schedule s = build_schedule(
      "ring", {.collective = Collective::kAllReduce, .self = 9000, .num_ranks = 16384, .elements = 1LL << 30});
  EXPECT_EQ(bytes_sent(s), 2LL * 16383 * (1LL << 30) * 4 / 16384);
}

}  // namespace
}  // namespace herd::testing_support
