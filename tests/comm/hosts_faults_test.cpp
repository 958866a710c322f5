// Ranks on several hosts (as far as they know) that are killed, stopped, late, or run another program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/faults.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;
using testing_support::entries_of;
using testing_support::error_of_a_kill;

using HostsFaults = testing_support::BetweenHosts;

TEST_F(HostsFaults, EverySurvivorOnBothHostsGetsPeerLost_SoonAfterAKill) {
  expect_within(2s, [] {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    ForkWorld world(
        4,
        [&](Communicator& comm) {
          std::vector<float> x(1000);
          for (int i = 0;; ++i) {
            if (comm.rank() == 2) std::this_thread::sleep_for(1ms);
            comm.all_reduce(x, {.name = "loop"});
            if (i == 50 && comm.rank() == 2 && write(ready[1], "x", 1) != 1) return;
          }
        },
        testing_support::on_hosts({0, 0, 1, 1}));
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    const auto killed = steady_clock::now();
    world.kill(2, SIGKILL);
    const auto ends = world.wait();
    const auto took = steady_clock::now() - killed;
    close(ready[0]), close(ready[1]);
    for (Rank rank : {0, 1, 3}) {
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("kPeerLost: rank 2 is lost"));
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("is gone"));
    }
    return took;
  });
}

TEST_F(HostsFaults, AKillIsNoticedWithinASecond_ByARankThatNeverSentToTheDead) {
  EXPECT_EQ(error_of_a_kill(20ms, 1s, testing_support::on_hosts_of_one_rank(2)), "");
}

TEST_F(HostsFaults, AStoppedPeerIsATimeoutThatNamesIt_AndIsNotCalledDead) {
  expect_within(3s, [] {
    ForkWorld world(
        4,
        [](Communicator& comm) {
          std::vector<float> x(100);
          comm.all_reduce(x);
          if (comm.rank() == 3) std::raise(SIGSTOP);
          comm.all_reduce(x, {.deadline = 400ms});
        },
        testing_support::on_hosts({0, 0, 1, 1}));
    int status = 0;
    waitpid(world.pid(3), &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
    const auto begin = steady_clock::now();
    for (Rank rank : {0, 1, 2}) {
      siginfo_t ended = {};
      waitid(P_PID, static_cast<id_t>(world.pid(rank)), &ended, WEXITED | WNOWAIT);
    }
    const auto took = steady_clock::now() - begin;
    world.kill(3, SIGCONT);
    const auto ends = world.wait();
    for (Rank rank : {0, 1, 2}) {
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("kTimeout: all_reduce #2"));
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("rank 3"));
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("stopped (SIGSTOP or a debugger)"));
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, Not(HasSubstr("lost")));
    }
    EXPECT_THAT(ends[3].error, HasSubstr("found by rank")) << "it hears why when it goes on";
    return took;
  });
}

TEST_F(HostsFaults, ARankThatComputesAnswersForItself_SoTheReportSaysWhereItIs) {
  int over[2];
  ASSERT_EQ(pipe(over), 0);
  ForkWorld world(
      2,
      [&](Communicator& comm) {
        std::vector<float> x(100);
        comm.all_reduce(x, {.name = "first"});
        if (comm.rank() == 1) comm.show_activity("a long sum");
        char byte = 0;
        if (comm.rank() == 1 && read(over[0], &byte, 1) != 1) return;  // until rank 0 has given up
        try {
          comm.all_reduce(x, {.deadline = 300ms});
        } catch (const Error&) {
          if (comm.rank() == 0 && write(over[1], &byte, 1) != 1) return;
          throw;
        }
      },
      testing_support::on_hosts_of_one_rank(2));
  const auto ends = world.wait();
  close(over[0]), close(over[1]);
  EXPECT_THAT(ends[0].error, HasSubstr("kTimeout: all_reduce #2"));
  EXPECT_THAT(ends[0].error, HasSubstr("rank 1 has finished all_reduce #1 \"first\""));
  EXPECT_THAT(ends[0].error, HasSubstr("is alive, last in a long sum"));
  EXPECT_THAT(ends[1].error, HasSubstr("kTimeout"));
}

TEST_F(HostsFaults, RanksThatCallDifferentOperationsHearBothBeforeDataMoves) {
  ForkWorld world(
      2,
      [](Communicator& comm) {
        std::vector<float> x(100, static_cast<float>(comm.rank())), y(200, 1);
        try {
          comm.rank() == 0 ? comm.all_reduce(x, {.name = "theirs", .deadline = 5s})
                           : comm.all_reduce(y, {.name = "ours", .deadline = 5s});
        } catch (const Error& error) {
          if (x[0] != static_cast<float>(comm.rank())) throw std::runtime_error("data moved");
          throw;
        }
      },
      testing_support::on_hosts_of_one_rank(2));
  for (const RankEnd& end : world.wait()) {
    EXPECT_THAT(end.error, HasSubstr("kBadConfig: operation #1"));
    EXPECT_THAT(end.error, HasSubstr("\"ours\""));
    EXPECT_THAT(end.error, HasSubstr("\"theirs\""));
  }
}

TEST_F(HostsFaults, AbortIsHeardOnTheOtherHost) {
  ForkWorld world(
      2,
      [](Communicator& comm) {
        std::vector<float> x(100);
        comm.all_reduce(x);
        if (comm.rank() == 1) comm.abort("out of coffee");
        comm.barrier();
      },
      testing_support::on_hosts_of_one_rank(2));
  for (const RankEnd& end : world.wait()) EXPECT_THAT(end.error, HasSubstr("rank 1 aborted: out of coffee"));
}

TEST_F(HostsFaults, ARankThatLeavesEarlyHasLeft_NotDied) {
  ForkWorld world(
      2,
      [](Communicator& comm) {
        std::vector<float> x(100, 1);
        comm.all_reduce(x);
        if (x[0] != 2) throw std::runtime_error("sum");
        if (comm.rank() == 0) comm.barrier();
      },
      testing_support::on_hosts_of_one_rank(2));
  const auto ends = world.wait();
  EXPECT_THAT(ends[0].error, HasSubstr("kPeerLost: rank 1 has left"));
  EXPECT_EQ(ends[1].error, "");
}

TEST_F(HostsFaults, GroupsLeaveNoDescriptorsBehind) {
  run_forked(
      2,
      [](Communicator& comm) {
        std::vector<float> x(100);
        comm.all_reduce(x);
        const int files = entries_of("/proc/self/fd");
        for (int i = 0; i < 5; ++i) {
          Communicator part = comm.split(0, 0, "part");
          part.all_reduce(x);
        }
        comm.all_reduce(x);
        for (int i = 0; i < 200 && entries_of("/proc/self/fd") > files; ++i)  // the peer's part of a group goes later
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (entries_of("/proc/self/fd") > files) throw std::runtime_error("descriptors are left open");
      },
      testing_support::on_hosts_of_one_rank(2));
}

}  // namespace
}  // namespace herd
