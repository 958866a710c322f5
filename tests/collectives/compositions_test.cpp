// Hierarchies, tori and meshes: composed schedules verify on every shape, and move what their header says.
#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

#include "herd/schedule/traffic.h"
#include "herd/schedule/verify_schedule.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/schedule/interpreter.h"

namespace herd::testing_support {
namespace {

CollectiveRequest placed(CollectiveRequest request, const Placement& placement) {
  request.grid = placement.grid;
  request.hosts = placement.hosts;
  request.same_host = placement.hosts.empty();
  return request;
}

std::string title_of(const AlgorithmInfo& info, const CollectiveRequest& request, const Placement& placement) {
  return title(info, request) + " " + describe(placement) + (request.direct ? " direct" : "");
}

class Compositions : public testing::TestWithParam<int> {};

TEST_P(Compositions, VerifyOnEveryPlacement) {
  const int n = GetParam();
  int verified = 0;
  for (const AlgorithmInfo& info : every_algorithm()) {
    if (!is_composition(info)) continue;
    for (const Placement& placement : placements_of(n)) {
      for (const int64_t elements : {0, 1, n - 1, n, n + 1, 1000, 65537}) {
        if (n > 9 && elements > 1 && elements != n + 1) continue;  // the smaller ones see all counts
        for (const bool in_place : {false, true}) {
          for (const bool direct : {false, true}) {
            CollectiveRequest request = placed({.collective = info.collective,
                                                .num_ranks = n,
                                                .elements = elements,
                                                .in_place = in_place,
                                                .direct = direct},
                                               placement);
            if (!serves(info, request)) continue;
            const auto findings = verify(build_all_ranks(info.name, request));
            ASSERT_TRUE(findings.empty()) << title_of(info, request, placement) << "\n  " << describe(findings[0]);
            ++verified;
          }
        }
      }
    }
  }
  EXPECT_GT(verified, 40);
}

TEST_P(Compositions, VerifyForUnevenParts) {
  const int n = GetParam();
  for (const AlgorithmInfo& info : every_algorithm()) {
    if (!is_composition(info) || !has_counts(info.collective)) continue;
    for (const Placement& placement : placements_of(n)) {
      for (const bool in_place : {false, true}) {
        const CollectiveRequest request =
            placed(uneven({.collective = info.collective, .num_ranks = n, .in_place = in_place}), placement);
        if (!serves(info, request)) continue;
        const auto all = build_all_ranks(info.name, request);
        const auto findings = verify(all);
        ASSERT_TRUE(findings.empty()) << title_of(info, request, placement) << "\n  " << describe(findings[0]);
        if (n > 6) continue;
        EXPECT_EQ(interpret(all, {.seed = 3}).verdict, Verdict::kRight) << title_of(info, request, placement);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Compositions, testing::Values(3, 4, 5, 6, 7, 8, 9, 16, 17));

TEST(Compositions, LongMessagesOverlapTheirAxesInParts) {
  for (const bool in_place : {false, true}) {
    CollectiveRequest request{.collective = Collective::kAllReduce,
                              .num_ranks = 8,
                              .elements = 1'100'001,  // 4 MiB and some: 4 parts
                              .in_place = in_place,
                              .direct = true};
    for (const bool cyclic : {false, true}) {
      request.hosts = hosts_of(8, 2, cyclic);
      const auto all = build_all_ranks("hierarchical", request);
      EXPECT_TRUE(verify(all).empty());
      const auto sends = [](const Step& step) { return step.kind == StepKind::kSend; };
      EXPECT_EQ(std::count_if(all[0].steps.begin(), all[0].steps.end(), sends), 4 * 2);
    }
    request.hosts.clear();
    request.direct = false;
    request.grid = {2, 2, 2};
    EXPECT_TRUE(verify(build_all_ranks("torus_3d", request)).empty());
    request.grid = {4, 2};
    EXPECT_TRUE(verify(build_all_ranks("mesh_2d", request)).empty());
  }
}

TEST(Compositions, AHierarchicalTreeServesHostsOfDifferentSizes) {
  const CollectiveRequest request{
      .collective = Collective::kAllReduce, .num_ranks = 7, .elements = 1000, .hosts = {0, 0, 1, 0, 2, 2, 0}};
  EXPECT_TRUE(verify(build_all_ranks("hierarchical_tree", request)).empty());
}

int64_t bytes_between_hosts(const std::vector<Schedule>& all, const std::vector<int>& hosts, Rank rank) {
  int64_t bytes = 0;
  for (const Step& step : all[static_cast<size_t>(rank)].steps) {
    const bool away = step.peer >= 0 && hosts[static_cast<size_t>(step.peer)] != hosts[static_cast<size_t>(rank)];
    if (step.kind == StepKind::kSend && away) bytes += step.sources[0].size() * 4;
  }
  return bytes;
}

TEST(Compositions, AHierarchySendsOnlyItsShareBetweenHosts) {
  const int m = 4, h = 4, n = m * h;
  const int64_t S = 960LL * n * 4;
  const auto sent = [&](Collective collective, bool cyclic) {
    CollectiveRequest request{.collective = collective, .num_ranks = n, .elements = S / 4};
    request.hosts = hosts_of(n, h, cyclic);
    return bytes_between_hosts(build_all_ranks("hierarchical", request), request.hosts, 5);
  };
  for (const bool cyclic : {false, true}) {
    EXPECT_EQ(sent(Collective::kAllReduce, cyclic), 2 * (h - 1) * S / m / h);
    EXPECT_EQ(sent(Collective::kReduceScatter, cyclic), (h - 1) * S / m / h);
    EXPECT_EQ(sent(Collective::kAllGather, cyclic), (h - 1) * S / m / h);
    EXPECT_EQ(sent(Collective::kAllToAll, cyclic), (h - 1) * S / h);
  }
}

TEST(Compositions, AHierarchicalExchangeSendsOneMessageToEachOtherHost) {
  CollectiveRequest request{.collective = Collective::kAllToAll, .num_ranks = 12, .elements = 1200};
  request.hosts = hosts_of(12, 3);
  for (const Schedule& s : build_all_ranks("hierarchical", request)) {
    EXPECT_EQ(std::count_if(s.steps.begin(), s.steps.end(), [](const Step& t) { return t.kind == StepKind::kSend; }),
              2);
  }
}

TEST(Compositions, ATorusTakesTwiceTheSumOfItsSidesAndSendsWhatARingSends) {
  CollectiveRequest request{.collective = Collective::kAllReduce, .num_ranks = 24, .elements = 2400};
  request.grid = {2, 3, 4};
  const auto all = build_all_ranks("torus_3d", request);
  EXPECT_EQ(num_rounds(all), 2 * (1 + 2 + 3));
  for (const Schedule& s : all) EXPECT_EQ(bytes_sent(s), 2 * 23 * 9600 / 24);
}

TEST(Compositions, AMeshUsesNoWrapLink) {
  CollectiveRequest request{.num_ranks = 12, .elements = 1200};
  request.grid = {4, 3};
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    request.collective = collective;
    for (const Schedule& s : build_all_ranks("mesh_2d", request)) {
      for (const Step& step : s.steps) {
        if (step.peer < 0) continue;
        const int dx = std::abs(step.peer % 4 - s.self % 4), dy = std::abs(step.peer / 4 - s.self / 4);
        EXPECT_EQ(dx + dy, 1) << s.self << " talks to " << step.peer;
      }
    }
  }
}

TEST(Compositions, ARankBuildsItsOwnStepsOfAVeryLargeWorld) {
  CollectiveRequest request{.self = 9000, .num_ranks = 16384, .elements = 1 << 20};
  request.hosts = hosts_of(16384, 2048);
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    request.collective = collective;
    const std::clock_t start = std::clock();
    const Schedule s = build_schedule("hierarchical", request);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;  // of this process alone
    EXPECT_LT(seconds, 1) << collective_name(collective);
    RecordProperty(std::string(collective_name(collective)) + "_build_us", std::to_string(seconds * 1e6));
    EXPECT_GT(s.steps.size(), 10u);
  }
}

}  // namespace
}  // namespace herd::testing_support
