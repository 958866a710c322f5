// Real processes that are killed or stopped in the middle of operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/faults.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing_support::entries_of;
using testing_support::error_of_a_kill;

int count_mappings(const std::string& word) {
  std::ifstream file("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(word) != std::string::npos;
  return count;
}

TEST(ProcessFaults, EverySurvivorGetsPeerLost_SoonAfterAKill) {
  expect_within(1s, [] {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    ForkWorld world(3, [&](Communicator& comm) {
      std::vector<float> x(1000);
      for (int i = 0;; ++i) {
        // Rank 2 sleeps in between, so that it dies outside an operation as often as inside one.
        if (comm.rank() == 2) std::this_thread::sleep_for(1ms);
        comm.all_reduce(x, {.name = "loop"});
        if (i == 50 && comm.rank() == 2 && write(ready[1], "x", 1) != 1) return;
      }
    });
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    const auto killed = steady_clock::now();
    world.kill(2, SIGKILL);
    const auto ends = world.wait();
    const auto took = steady_clock::now() - killed;
    close(ready[0]), close(ready[1]);
    for (Rank rank : {0, 1}) {
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("kPeerLost: rank 2 is lost"));
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("all_reduce #"));
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error, HasSubstr("is gone"));
    }
    return took;
  });
}

TEST(ProcessFaults, AKillIsNoticedWithin100Milliseconds) { EXPECT_EQ(error_of_a_kill(0ms, 100ms), ""); }

TEST(ProcessFaults, AStoppedPeerIsATimeoutThatNamesIt_AndIsNotCalledDead) {
  expect_within(2s, [] {
    ForkWorld world(2, [](Communicator& comm) {
      std::vector<float> x(100);
      comm.all_reduce(x);
      if (comm.rank() == 1) std::raise(SIGSTOP);
      comm.all_reduce(x, {.deadline = 300ms});
    });
    int status = 0;
    waitpid(world.pid(1), &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
    const auto begin = steady_clock::now();
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(world.pid(0)), &ended, WEXITED | WNOWAIT);
    const auto took = steady_clock::now() - begin;
    world.kill(1, SIGCONT);
    const auto ends = world.wait();
    EXPECT_THAT(ends[0].error, HasSubstr("kTimeout: all_reduce #2"));
    EXPECT_THAT(ends[0].error, HasSubstr("for rank 1"));
    EXPECT_THAT(ends[0].error, HasSubstr("is stopped (SIGSTOP or a debugger)"));
    EXPECT_THAT(ends[0].error, testing::Not(HasSubstr("lost")));
    EXPECT_THAT(ends[1].error, HasSubstr("found by rank 0")) << "it hears why when it goes on";
    return took;
  });
}

TEST(ProcessFaults, ARankKilledWhileItWritesWhyTheGroupFails_IsLostForAll) {
  expect_within(2s, [] {
    ForkWorld world(3, [](Communicator& comm) {
      std::vector<float> x(10);
      comm.barrier();
      if (comm.rank() == 1) {
        comm::CommunicatorTestAccess::group(comm).channel().failure_board().claim(1);
        std::raise(SIGKILL);
      }
      // Neither has a reason of its own: nobody that it waits for is gone.
      if (comm.rank() == 0) comm.receive(x, 2, 1, {.deadline = 10s});
      if (comm.rank() == 2) comm.receive(x, 0, 1, {.deadline = 10s});
    });
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(world.pid(1)), &ended, WEXITED | WNOWAIT);
    const auto begin = steady_clock::now();
    const auto ends = world.wait();
    for (Rank rank : {0, 2}) {
      EXPECT_THAT(ends[static_cast<size_t>(rank)].error,
                  HasSubstr("kPeerLost: rank 1 is lost, while it told its group \"world\" why it fails"));
    }
    return steady_clock::now() - begin;
  });
}

TEST(ProcessFaults, TooLittleSharedMemoryIsAnErrorOnEveryRank) {
  run_forked(2, [](Communicator& comm) {
    const rlimit limit = {64 << 20, RLIM_INFINITY};
    if (comm.rank() == 0) setrlimit(RLIMIT_FSIZE, &limit);
    try {
      comm.allocate_symmetric(256 << 20);
    } catch (const Error& error) {
      if (error.code() != Code::kStorage || error.message().find("too little shared memory") == std::string::npos)
        throw;
      std::vector<float> x(10, 1);
      comm.all_reduce(x);  // the group goes on
      if (x[0] != 2) throw std::runtime_error("sum");
      return;
    }
    throw std::runtime_error("256 MiB were given under a limit of 64 MiB");
  });
}

TEST(ProcessFaults, MoreMemoryThanTheMachineHasIsAnErrorBeforeItIsTouched) {
  run_forked(2, [](Communicator& comm) {
    try {
      comm.allocate_symmetric(int64_t{1} << 42);
    } catch (const Error& error) {
      if (error.code() == Code::kStorage) return;
      throw;
    }
    throw std::runtime_error("4 TiB were given");
  });
}

TEST(ProcessFaults, GroupsAndMemoryLeaveNothingBehind) {
  run_forked(2, [](Communicator& comm) {
    std::vector<float> x(100);
    const int files = entries_of("/proc/self/fd"), mappings = count_mappings("herd:");
    for (int i = 0; i < 5; ++i) {
      Communicator part = comm.split(0, 0, "part");
      SymmetricMemory memory = part.allocate_symmetric(1 << 20);
      part.all_reduce(memory.span<float>());
      memory = {};
      part.all_reduce(x);
    }
    comm.all_reduce(x);
    if (entries_of("/proc/self/fd") != files) throw std::runtime_error("descriptors are left open");
    if (count_mappings("herd:") != mappings) throw std::runtime_error("mappings are left");
  });
}

}  // namespace
}  // namespace herd
