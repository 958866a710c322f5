#include <gtest/gtest.h>

#include "herd/comm/fork_world.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/conformance.h"

namespace herd::testing_support {
namespace {

class ConformanceShm : public testing::TestWithParam<int> {};

TEST_P(ConformanceShm, EveryPairOfParameters) {
  const auto cases = conformance_cases(GetParam(), full_tests() ? Cover::kFull : Cover::kPairwise);
  RecordProperty("cases", static_cast<int>(cases.size()));
  run_forked(GetParam(), [&](Communicator& world) { run_conformance(world, cases); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceShm, testing::Values(2, 3, 4));

TEST(ConformanceShmRandom, ThousandsOfOperations) {
  const int count = full_tests() ? 10000 : 2000;
  run_forked(3, [&](Communicator& world) { run_random_operations(world, 2, count, true); });
}

}  // namespace
}  // namespace herd::testing_support
