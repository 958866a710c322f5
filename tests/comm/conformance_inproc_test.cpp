#include <gtest/gtest.h>

#include <stdexcept>

#include "herd/comm/fork_world.h"
#include "herd/comm/inproc_world.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/conformance.h"

namespace herd::testing_support {
namespace {

void run_cases(int n, Cover cover) {
  const auto cases = conformance_cases(n, cover, true);
  testing::Test::RecordProperty("cases", static_cast<int>(cases.size()));
  run_inproc(n, [&](Communicator& world) { run_conformance(world, cases); });
}

class ConformanceInproc : public testing::TestWithParam<int> {};

TEST_P(ConformanceInproc, EveryAlgorithmAtEveryCount_EvenAndUneven_InPlaceAndNot) {
  run_cases(GetParam(), full_tests() ? Cover::kFull : Cover::kRanks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceInproc, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

TEST(ConformanceInprocTypes, EveryAlgorithmWithEveryDTypeAndOp) { run_cases(3, Cover::kTypes); }

TEST(ConformanceBits, AreTheSameOnEveryRankAndInEveryRun_ByThreadsAndByProcesses) {
  constexpr int kRanks = 3;
  const auto by_threads = [] {
    uint64_t hash = 0;
    run_inproc(kRanks, [&](Communicator& world) {
      const uint64_t mine = hash_of_rounded_sums(world, true);
      if (world.rank() == 0) hash = mine;
    });
    return hash;
  };
  const uint64_t hash = by_threads();
  EXPECT_EQ(by_threads(), hash);
  run_forked(kRanks, [&](Communicator& world) {
    if (hash_of_rounded_sums(world, true) != hash) throw std::runtime_error("other bits than by threads");
  });
}

TEST(ConformanceInprocRandom, TenThousandRandomOperations) {
  run_inproc(4, [](Communicator& world) { run_random_operations(world, 1, 10000, true); });
}

}  // namespace
}  // namespace herd::testing_support
