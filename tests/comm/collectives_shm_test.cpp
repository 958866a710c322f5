#include <gtest/gtest.h>

#include "herd/comm/fork_world.h"
#include "tests/comm/collective_check.h"
#include "tests/comm/counted_bytes.h"

namespace herd {
namespace {

using namespace testing_support;

class CollectivesShm : public testing::TestWithParam<int> {};

TEST_P(CollectivesShm, GiveExactlyTheDefinition_ByEveryAlgorithm) {
  const int n = GetParam();
  run_forked(n, [&](Communicator& comm) { check_everything(comm, {0, 1, n - 1, n, n + 1, 1000, 140011}); });
}

TEST_P(CollectivesShm, CountTheBytesOfTheirEquations) {
  run_forked(GetParam(), [&](Communicator& comm) { check_counted_bytes(comm); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesShm, testing::Values(2, 3, 4));

TEST(Raw, ACopyIsSeenAfterItsSignal) { run_forked(2, pass_on_raw); }

TEST(Groups, OfProcessesWorkSideBySide) {
  run_forked(3, [](Communicator& world) {
    Communicator a = world.split(0, world.rank(), "a"), pair = world.split(world.rank() == 2 ? -1 : 0, 0, "pair");
    for (int round = 0; round < 30; ++round) {
      std::vector<int64_t> x(1000, 1), y(20000, 2), z(10, 3);
      Work one = world.all_reduce_async(x), two = a.all_reduce_async(y);
      if (world.rank() < 2) pair.all_reduce(z);
      two.wait();
      one.wait();
      expect_equal(static_cast<double>(x[999]), 3, "world");
      expect_equal(static_cast<double>(y[19999]), 6, "a");
      expect_equal(static_cast<double>(z[9]), world.rank() < 2 ? 6 : 3, "pair");
    }
  });
}

}  // namespace
}  // namespace herd
