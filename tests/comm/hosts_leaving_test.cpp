// Ranks on several hosts (as far as they know) that end as soon as their own part is done, while others still work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/between_hosts.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using HostsLeaving = testing_support::BetweenHosts;

void expect_well(ForkWorld& world, const std::string& what) {
  for (const RankEnd& end : world.wait()) {
    EXPECT_EQ(end.error, "") << what;
    EXPECT_EQ(end.status, 0) << what;
  }
}

TEST_F(HostsLeaving, AProgramOfOneOperationNeedsNoBarrierAtItsEnd) {
  const int rounds = std::getenv("HERD_FULL_TESTS") != nullptr ? 30 : 3;
  for (int round = 0; round < rounds; ++round) {
    for (const char* algorithm : {"ring", "binomial_tree", "double_tree", "circulant"}) {
      ForkWorld world(
          6,
          [=](Communicator& comm) {
            std::vector<float> x(1000, 1);
            comm.all_reduce(x, {.algorithm = algorithm});
            if (x[999] != 6) throw std::runtime_error("sum");
          },
          testing_support::on_hosts_of_one_rank(6));
      expect_well(world, std::string(algorithm) + " in round " + std::to_string(round));
    }
  }
}

// The root has told ranks 1 and 2, and never spoke with rank 3, which waits for rank 2 and asks all where they are.
TEST_F(HostsLeaving, ARootThatEndsFirstIsNotMissed_ByRanksThatWaitForOthers) {
  ForkWorld world(
      4,
      [](Communicator& comm) {
        std::vector<float> x(1000, comm.rank() == 0 ? 5.0f : 0);
        if (comm.rank() == 1 || comm.rank() == 2) std::this_thread::sleep_for(400ms);
        comm.broadcast(x, 0, {.algorithm = "binomial"});
        if (x[999] != 5) throw std::runtime_error("broadcast");
      },
      testing_support::on_hosts_of_one_rank(4));
  expect_well(world, "binomial");
}

}  // namespace
}  // namespace herd
