#include <gtest/gtest.h>

#include <set>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "herd/comm/fork_world.h"
#include "herd/comm/inproc_world.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/conformance.h"

namespace herd::testing_support {
namespace {

void run_cases(int n, std::span<const ConformanceCase> cases, const Placement& placement = {}) {
  run_inproc(
      n, [&](Communicator& world) { run_conformance(world, cases, placement); }, placement.hosts);
}

class ConformanceInproc : public testing::TestWithParam<int> {};

TEST_P(ConformanceInproc, EveryAlgorithmAtEveryCount_EvenAndUneven_InPlaceAndNot) {
  const auto cases = conformance_cases(GetParam(), full_tests() ? Cover::kFull : Cover::kRanks);
  RecordProperty("cases", static_cast<int>(cases.size()));
  run_cases(GetParam(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceInproc, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

// By default a third of the types and ops on each number of ranks.
TEST(ConformanceInprocTypes, EveryAlgorithmWithEveryDTypeAndOp) {
  for (const int n : {2, 3, 4}) {
    auto cases = conformance_cases(n, Cover::kTypes);
    int index = n;
    if (!full_tests()) std::erase_if(cases, [&](const ConformanceCase&) { return ++index % 3 != 0; });
    run_cases(n, cases);
  }
}

class ConformanceInprocPlaced : public testing::TestWithParam<int> {};

// Each run some cases of each composition on every placement of up to 7 ranks and on one in three of more; in full all
// algorithms, at every count, even and uneven, in place and not.
TEST_P(ConformanceInprocPlaced, EveryCompositionOnEveryPlacement) {
  const int n = GetParam();
  int runs = 0, number = 0;
  std::set<std::pair<Collective, std::string_view>> seen;
  for (const Placement& placement : placements_of(n)) {
    if (!full_tests() && n > 7 && ++number % 3 != 0) continue;
    auto cases = conformance_cases(n, full_tests() ? Cover::kRanks : Cover::kPairwise, placement);
    if (!full_tests()) std::erase_if(cases, [](const ConformanceCase& c) { return !is_composition(c.algorithm); });
    for (const ConformanceCase& c : cases) {
      if (is_composition(c.algorithm)) seen.insert({c.collective, c.algorithm});
    }
    runs += static_cast<int>(cases.size());
    EXPECT_NO_THROW(run_cases(n, cases, placement)) << describe(placement);
  }
  RecordProperty("cases", runs);
  // A prime number of ranks has no grid: hosts of different sizes alone, for one composition.
  const bool prime = n == 3 || n == 5 || n == 7 || n == 17;
  const size_t on_three_axes = n % 8 == 0 ? 3 : 0;  // all_reduce, all_gather, reduce_scatter by torus_3d
  EXPECT_EQ(seen.size(), prime ? 1 : 14 + on_three_axes);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceInprocPlaced, testing::Values(3, 4, 5, 6, 7, 8, 9, 16, 17));

uint64_t hash_by_threads(int n, const Placement& placement) {
  uint64_t hash = 0;
  const auto body = [&](Communicator& world) {
    const uint64_t mine = hash_of_rounded_sums(world, placement);
    if (world.rank() == 0) hash = mine;
  };
  run_inproc(n, body, placement.hosts);
  return hash;
}

TEST(ConformanceBits, AreTheSameOnEveryRankAndInEveryRun_ByThreadsAndByProcesses) {
  constexpr int kRanks = 3;
  const uint64_t hash = hash_by_threads(kRanks, {});
  EXPECT_EQ(hash_by_threads(kRanks, {}), hash);
  run_forked(kRanks, [&](Communicator& world) {
    if (hash_of_rounded_sums(world) != hash) throw std::runtime_error("other bits than by threads");
  });
}

TEST_P(ConformanceInproc, HoldsTheSameBitsOnEveryRankAndInEveryRun) {
  EXPECT_EQ(hash_by_threads(GetParam(), {}), hash_by_threads(GetParam(), {}));
}

TEST_P(ConformanceInprocPlaced, HoldsTheSameBitsOnEveryRankAndInEveryRun) {
  const auto placements = placements_of(GetParam());
  for (size_t i = 0; i < placements.size(); i += full_tests() ? 1 : GetParam() > 7 ? 9 : 4) {
    const uint64_t hash = hash_by_threads(GetParam(), placements[i]);
    EXPECT_EQ(hash_by_threads(GetParam(), placements[i]), hash) << describe(placements[i]);
  }
}

TEST(ConformanceInprocRandom, ThousandsOfRandomOperations) {
  const int count = full_tests() ? 10000 : 4000;
  run_inproc(4, [&](Communicator& world) { run_random_operations(world, 1, count, true); });
}

}  // namespace
}  // namespace herd::testing_support
