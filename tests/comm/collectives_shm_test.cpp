#include <gtest/gtest.h>

#include "herd/comm/fork_world.h"
#include "tests/comm/collective_check.h"

namespace herd {
namespace {

using namespace testing_support;

class CollectivesShm : public testing::TestWithParam<int> {};

TEST_P(CollectivesShm, GiveExactlyTheDefinition_ByEveryAlgorithm) {
  const int n = GetParam();
  run_forked(n, [&](Communicator& comm) { check_everything(comm, {0, 1, n - 1, n, n + 1, 1000, 140011}); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesShm, testing::Values(2, 3, 4));

}  // namespace
}  // namespace herd
