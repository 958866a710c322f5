// Survivors of a failed group form a smaller one and go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/errors_of.h"
#include "tests/comm/require.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing_support::require;

void expect_lost(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() == Code::kPeerLost || error.code() == Code::kAborted) return;
    throw;
  }
  throw std::runtime_error("a group with a dead rank went on");
}

void expect_well(const std::vector<RankEnd>& ends, Rank rank, const std::string& what) {
  EXPECT_EQ(ends[static_cast<size_t>(rank)].error, "") << what << " rank " << rank;
  EXPECT_EQ(ends[static_cast<size_t>(rank)].status, 0) << what << " rank " << rank;
}

void sum_of_ones(Communicator& comm) {
  std::vector<int64_t> x(1000, 1);
  comm.all_reduce(x);
  require(x[999] == comm.size(), "sum");
}

TEST(Shrink, SurvivorsOfAKillGoOnInTheSameOrder_WithTheirSymmetricMemory) {
  ForkWorld world(4, [](Communicator& comm) {
    SymmetricMemory memory = comm.allocate_symmetric(4096);
    expect_lost([&] {
      comm.barrier();
      if (comm.rank() == 1) std::raise(SIGKILL);
      while (true) comm.barrier();
    });
    Communicator left = comm.shrink("left");
    require(left.size() == 3 && left.rank() == (comm.rank() == 0 ? 0 : comm.rank() - 1), "ranks keep their order");
    require(left.name() == "left", "name");
    sum_of_ones(left);
    for (float& one : memory.span<float>()) one = 1;
    left.all_reduce(memory.span<float>(), {.algorithm = "direct_push"});
    require(memory.span<float>()[100] == 3, "symmetric memory");
    Communicator pair = left.split(left.rank() == 2 ? -1 : 0, 0, "pair");
    if (left.rank() < 2) sum_of_ones(pair);
    expect_lost([&] { comm.barrier(); });
    left.barrier();
  });
  const auto ends = world.wait();
  for (Rank rank : {0, 2, 3}) expect_well(ends, rank, "");
}

// Rank 3 dies, and so many microseconds later `victim`: before, in, or after the agreement on who is left of the first.
void lose_rank_3_then(Communicator& comm, Rank victim, int later_us) {
  // A rank that is still in this barrier when the group fails hears of it there.
  if (comm.rank() == 3) {
    try {
      comm.barrier();
    } catch (const Error&) {
    }
    std::raise(SIGKILL);
  }
  std::thread death;
  if (comm.rank() == victim) {
    death = std::thread([later_us] {
      std::this_thread::sleep_for(std::chrono::microseconds(later_us));
      std::raise(SIGKILL);
    });
  }
  expect_lost([&] {
    while (true) comm.barrier();
  });
  Communicator left = comm.shrink();
  while (left.size() > 2) {
    try {
      for (int i = 0; i < 100000; ++i) left.barrier();
    } catch (const Error&) {
      left = left.shrink();
    }
  }
  sum_of_ones(left);
  if (death.joinable()) death.join();
  left.barrier();
}

TEST(Shrink, EndsOnAllSurvivorsInTheSameGroup_WheneverAnotherRankDies) {
  for (int round = 0; round < 12; ++round) {
    const Rank victim = round % 2 == 0 ? 0 : 2;  // the one that leads what follows, or another
    ForkWorld world(4, [=](Communicator& comm) { lose_rank_3_then(comm, victim, 500 * round); });
    const auto ends = world.wait();
    for (Rank rank : {1, 2 - victim}) expect_well(ends, rank, "round " + std::to_string(round));
  }
}

using ShrinkOverHosts = testing_support::BetweenHosts;

TEST_F(ShrinkOverHosts, SurvivorsOfAKillGoOn_WhicheverHostItWasOn) {
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, std::vector{0, 1, 2, 2}}) {
    for (const Rank victim : {0, 1, 3}) {
      ForkWorld world(
          4,
          [victim](Communicator& comm) {
            expect_lost([&] {
              comm.barrier();
              if (comm.rank() == victim) std::raise(SIGKILL);
              while (true) comm.barrier();
            });
            Communicator left = comm.shrink("left");
            require(left.size() == 3 && left.rank() == comm.rank() - (comm.rank() > victim ? 1 : 0), "ranks");
            sum_of_ones(left);
            left.barrier();
          },
          testing_support::on_hosts(hosts));
      const auto ends = world.wait();
      for (Rank rank = 0; rank < 4; ++rank) {
        if (rank == victim) continue;
        expect_well(ends, rank, "victim " + std::to_string(victim));
      }
    }
  }
}

TEST_F(ShrinkOverHosts, EndsOnAllSurvivorsInTheSameGroup_WheneverAnotherRankDies) {
  for (int round = 0; round < 8; ++round) {
    const Rank victim = round % 2 == 0 ? 0 : 2;
    ForkWorld world(
        4, [=](Communicator& comm) { lose_rank_3_then(comm, victim, 700 * round); },
        testing_support::on_hosts({0, 0, 1, 1}));
    const auto ends = world.wait();
    for (Rank rank : {1, 2 - victim}) expect_well(ends, rank, "round " + std::to_string(round));
  }
}

TEST(Shrink, OfAGroupThatOnlyFailedKeepsAllItsRanks_AndEndsWhatIsInFlight) {
  run_inproc(3, [](Communicator& comm) {
    std::vector<float> x(10);
    Work work = comm.rank() == 0 ? comm.all_reduce_async(x) : Work();
    Communicator again = comm.shrink();
    EXPECT_EQ(again.size(), 3);
    sum_of_ones(again);
    if (comm.rank() == 0) {
      EXPECT_THROW(work.wait(), Error);
    }
  });
}

TEST(Shrink, NamesTheRankThatLivesAndDoesNotCome) {
  const auto errors = testing_support::errors_of(3, [](Communicator& comm) {
    if (comm.rank() != 1) comm.shrink("left", {.deadline = 1s});
  });
  for (Rank rank : {0, 2}) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)].code(), Code::kTimeout);
    EXPECT_THAT(errors[static_cast<size_t>(rank)].what(), HasSubstr("waits for these to agree who is left: rank 1"));
  }
}

}  // namespace
}  // namespace herd
