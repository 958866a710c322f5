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
#include "tests/comm/errors_of.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void expect_lost(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() == Code::kPeerLost || error.code() == Code::kAborted) return;
    throw;
  }
  throw std::runtime_error("a group with a dead rank went on");
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
  for (Rank rank : {0, 2, 3}) EXPECT_EQ(ends[static_cast<size_t>(rank)].error, "") << rank;
}

TEST(Shrink, EndsOnAllSurvivorsInTheSameGroup_WheneverAnotherRankDies) {
  for (int round = 0; round < 12; ++round) {
    ForkWorld world(4, [round](Communicator& comm) {
      // A rank that is still in this barrier when the group fails hears of it there.
      if (comm.rank() == 3) {
        try {
          comm.barrier();
        } catch (const Error&) {
        }
        std::raise(SIGKILL);
      }
      // The second victim is the one that leads what follows, or another.
      const Rank victim = round % 2 == 0 ? 0 : 2;
      std::thread death;
      if (comm.rank() == victim) {
        death = std::thread([round] {
          std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
          std::raise(SIGKILL);
        });
      }
      expect_lost([&] {
        while (true) comm.barrier();
      });
      Communicator left = comm.shrink();
      // It dies before, in, or after the agreement: then the group fails again, on all.
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
    });
    const auto ends = world.wait();
    for (Rank rank : {1, round % 2 == 0 ? 2 : 0}) EXPECT_EQ(ends[static_cast<size_t>(rank)].error, "") << round;
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
    if (comm.rank() != 1) comm.shrink("left", {.deadline = 100ms});
  });
  for (Rank rank : {0, 2}) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)].code(), Code::kTimeout);
    EXPECT_THAT(errors[static_cast<size_t>(rank)].what(), HasSubstr("waits for these to agree who is left: rank 1"));
  }
}

}  // namespace
}  // namespace herd
