#include "herd/comm/schedule_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "herd/comm/world_facts.h"
#include "herd/schedule/message_layout.h"
#include "herd/schedule/schedule_names.h"
#include "tests/support/sample.h"

namespace herd::comm {
namespace {

bool mixes(const Schedule& schedule) {  // messages to some, shared memory with others
  bool sends = false, signals = false;
  for (const Step& step : schedule.steps) {
    sends |= step.kind == StepKind::kSend;
    signals |= step.kind == StepKind::kSignal;
  }
  return sends && signals;
}

// Of the first ranks of a world on hosts of two cores.
ScheduleSource schedules_of(int num_ranks, std::optional<Topology> topology = {}) {
  auto facts = std::make_shared<WorldFacts>();
  facts->host.cores = 2;
  facts->topology = std::move(topology);
  std::vector<Rank> members(static_cast<size_t>(num_ranks));
  std::iota(members.begin(), members.end(), 0);
  return default_schedules(std::move(facts), std::move(members));
}

CollectiveRequest between_hosts(Rank self) {
  return {.collective = Collective::kAllReduce, .self = self, .num_ranks = 4, .elements = 1 << 20, .in_place = true};
}

TEST(ScheduleCache, MixesSharedMemoryAndMessagesOnSeveralHosts) {
  for (const std::vector<int>& hosts : {std::vector{5, 5, 2, 2}, std::vector{5, 2, 5, 2}}) {
    ScheduleCache schedules(schedules_of(4), 2368 << 10);
    CollectiveRequest request = between_hosts(2);
    request.hosts = hosts;
    const Schedule schedule = schedules.get("hierarchical", request).compiled.schedule();
    EXPECT_TRUE(mixes(schedule));
    for (const Step& step : schedule.steps) {
      if (step.kind == StepKind::kSignal) {
        EXPECT_EQ(hosts[static_cast<size_t>(step.peer)], hosts[2]);
      }
      if (step.kind == StepKind::kSend) {
        EXPECT_NE(hosts[static_cast<size_t>(step.peer)], hosts[2]);
      }
    }
  }
}

TEST(ScheduleCache, ARequestWithOtherSegmentsIsAnotherPlan) {
  ScheduleCache schedules(schedules_of(4), 2368 << 10);
  CollectiveRequest request = between_hosts(0);
  const uint64_t whole = schedules.get("chain", request).hash;
  const size_t steps = schedules.get("chain", request).compiled.schedule().steps.size();
  request.segment_bytes = 4096;
  EXPECT_NE(schedules.get("chain", request).hash, whole);
  EXPECT_GT(schedules.get("chain", request).compiled.schedule().steps.size(), steps);
  EXPECT_EQ(schedules.size(), 2u);
}

TEST(ScheduleCache, SegmentsAreForAlgorithmsThatHaveSome_WhereOneIsChosen) {
  ScheduleCache schedules(schedules_of(3), 2368 << 10);
  CollectiveRequest request{
      .collective = Collective::kAllGather, .num_ranks = 3, .elements = 3000, .segment_bytes = 64};
  EXPECT_NO_THROW(schedules.get("", request));
  EXPECT_THROW(schedules.get("ring", request), Error);
}

TEST(ScheduleCache, WithoutHostsChoosesMessagesAlone) {
  ScheduleCache schedules(schedules_of(4), 2368 << 10);
  EXPECT_FALSE(schedules.get("", between_hosts(0)).compiled.meets_peers());
}

TEST(ScheduleCache, SkewedCountsFitTheStageMemoryOfAGroup) {
  int index = 0;
  for (const int n : {3, 8}) {
    for (const int64_t elements : {100'000, 9'000'000}) {
      for (const Collective collective : {Collective::kReduceScatter, Collective::kAllToAll, Collective::kAllGather,
                                          Collective::kGather, Collective::kScatter}) {
        if (index++ % one_in(1, 3) != 0) continue;
        CollectiveRequest request{.collective = collective, .num_ranks = n, .same_host = true};
        for (Rank a = 0; a < n; ++a) {  // the last part, or what the last ranks exchange, is most of all
          if (collective != Collective::kAllToAll) request.counts.push_back(a == n - 1 ? elements : 1);
          for (Rank b = 0; collective == Collective::kAllToAll && b < n; ++b)
            request.counts.push_back(a == n - 1 && b == n - 1 ? elements : a);
        }
        request.elements = elements_of_counts(collective, n, request.counts);
        ScheduleCache schedules(schedules_of(n), 2368 << 10);
        EXPECT_NO_THROW(schedules.get("staged", request)) << collective_name(collective) << " " << n << " " << elements;
        EXPECT_NO_THROW(schedules.get("", request)) << collective_name(collective) << " " << n << " " << elements;
      }
    }
  }
}

TEST(ScheduleCache, CompositionsFitTheStageMemoryOfAGroup) {
  int index = 0;
  for (const int ranks : {4, 6, 8, 16}) {
    for (const int64_t elements : {1000, 100'003, 10'000'019, 200'000'033}) {
      for (const char* algorithm : {"hierarchical", "hierarchical_tree"}) {
        if (index++ % one_in(1, 5) != 0) continue;
        std::vector<int> hosts;
        for (Rank rank = 0; rank < ranks; ++rank) hosts.push_back(rank % 2);
        CollectiveRequest request = between_hosts(0);
        request.num_ranks = ranks, request.elements = elements;
        request.hosts = hosts;
        ScheduleCache schedules(schedules_of(ranks), 2368 << 10);
        EXPECT_NO_THROW(schedules.get(algorithm, request)) << algorithm << " " << ranks << " " << elements;
      }
    }
  }
}

}  // namespace
}  // namespace herd::comm
