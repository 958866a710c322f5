#include "herd/collectives/choose.h"

#include <gmock/gmock.h>

#include <chrono>

#include "herd/base/error.h"
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

TEST(Choose, PullsInTheCacheAndPushesBeyondIt) {
  EXPECT_EQ(choose(all_reduce(2, 1 << 20), one_host(2, 2)).algorithm, "direct_pull");
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
  EXPECT_EQ(choice.candidates.size(), 4u);
  EXPECT_EQ(choice.candidates.back().why_not, "needs buffers in symmetric memory");
}

TEST(Choose, HasOneAnswerBetweenHosts) {
  CollectiveRequest request = all_reduce(4, 1 << 20);
  request.direct = request.same_host = false;
  Host host;
  host.ranks = 2;
  EXPECT_THAT(choose(request, spine_leaf(2, host)).reason, HasSubstr("the only one that can serve this request"));
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
  EXPECT_EQ(choose(request, spine_leaf(128, host)).algorithm, "ring");
}

TEST(Choose, PricesManyPiecesByTheLineThroughFewer) {
  // 32 MiB is 64 pieces of 512 KiB; each costs a rank two signals to every peer.
  CollectiveRequest request = all_reduce(64, 32 << 20);
  request.direct = false;
  for (const Candidate& c : choose(request, one_host(64, 2)).candidates) {
    if (c.algorithm.name != "staged") continue;
    request.self = 0;
    const Schedule s = build_schedule("staged", request);
    EXPECT_EQ(c.messages, num_messages(s));
    EXPECT_NEAR(static_cast<double>(c.bytes_sent), static_cast<double>(bytes_sent(s)), 1e-3 * bytes_sent(s));
  }
}

TEST(Choose, PricesAlikeWhereSimulationEnds) {
  const Choice all = choose(all_reduce(kMaxSimulatedRanks, 64 << 20), one_host(kMaxSimulatedRanks, 2));
  const Choice one = choose(all_reduce(kMaxSimulatedRanks + 1, 64 << 20), one_host(kMaxSimulatedRanks + 1, 2));
  EXPECT_EQ(all.algorithm, one.algorithm);
  for (const Candidate& a : all.candidates) {
    for (const Candidate& b : one.candidates) {
      if (a.algorithm.name != b.algorithm.name) continue;
      EXPECT_NEAR(b.us / a.us, 1, 0.25) << a.algorithm.name;
    }
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
