// Four ranks in two groups each, of which every one waits for another in a group that the failing rank 3 is not in, or
// for rank 3 itself: 0 waits for 1, 1 for 3, 2 for 0. All hear what happened to rank 3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <latch>
#include <thread>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "herd/memory/shared_memory.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/errors_of.h"
#include "tests/comm/require.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::errors_of;
using testing_support::require;

constexpr int kRanks = 4, kVictim = 3;
constexpr auto kDeadline = 400ms;  // of who waits for a stopped rank

// Rows {0, 1} and {2, 3}, columns {0, 2} and {1, 3}.
struct Grid {
  explicit Grid(Communicator& world)
      : row(world.split(world.rank() / 2, world.rank(), "row")),
        column(world.split(world.rank() % 2, world.rank(), "column")) {}
  Communicator row, column;
};

void wait_for_another(Grid& grid, Rank rank, bool asynchronous = false) {
  std::vector<float> x(100);
  Communicator& group = rank == 0 ? grid.row : grid.column;
  if (asynchronous)
    group.all_reduce_async(x).wait();
  else
    group.all_reduce(x);
}

// When the victim was struck, in memory that all processes share, and when the last of the others knew.
struct Times {
  std::atomic<int64_t> struck_ns{0}, last_ns{0};
};

int64_t now_ns() { return steady_clock::now().time_since_epoch().count(); }

void note_latest(Times& times) {
  const int64_t now = now_ns();
  for (int64_t last = times.last_ns; last < now && !times.last_ns.compare_exchange_weak(last, now);) {
  }
}

// The errors of ranks 0, 1 and 2, and how long it took; the victim is ended afterwards.
std::vector<std::string> struck_by(int signal, const WorldOptions& options, std::chrono::milliseconds deadline,
                                   std::chrono::nanoseconds& took) {
  SharedMemory shared = SharedMemory::create("herd:failure_domain", kPageBytes);
  shared.commit(0, kPageBytes);
  auto& times = *new (shared.data()) Times;
  ForkWorld processes(
      kRanks,
      [&](Communicator& world) {
        Grid grid(world);
        world.barrier();
        // From here on: that processes start late is no failure.
        for (Communicator* group : {&world, &grid.row, &grid.column}) group->set_deadline(deadline);
        if (world.rank() == kVictim) {
          world.show_activity("step 7: forward of block3");
          times.struck_ns = now_ns();
          std::raise(signal);
          return;
        }
        try {
          wait_for_another(grid, world.rank());
        } catch (...) {
          note_latest(times);
          throw;
        }
      },
      options);
  std::vector<std::string> errors;
  for (Rank rank = 0; rank < kVictim; ++rank) errors.push_back(processes.wait(rank).error);
  processes.kill(kVictim, SIGKILL);
  took = std::chrono::nanoseconds(times.last_ns - times.struck_ns);
  return errors;
}

class FailureDomain : public testing_support::BetweenHosts, public testing::WithParamInterface<std::vector<int>> {
 protected:
  static WorldOptions options() { return GetParam().empty() ? WorldOptions{} : testing_support::on_hosts(GetParam()); }
  // The dead can't be asked, so that it is known on their host only.
  static const char* seen_doing() { return GetParam().empty() ? "is gone, last in step 7: forward of block3" : ""; }
};

TEST_P(FailureDomain, NamesAKilledRankEverywhere_WithinASecond) {
  expect_within(1s, [] {
    std::chrono::nanoseconds took{};
    for (const std::string& error : struck_by(SIGKILL, options(), 30s, took))
      EXPECT_THAT(error, AllOf(HasSubstr("kPeerLost"), HasSubstr("rank 3 is lost"), HasSubstr(seen_doing())));
    return took;
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, FailureDomain,
                         testing::Values(std::vector<int>{}, std::vector{0, 0, 1, 1}, std::vector{0, 1, 2, 3}),
                         [](const auto& hosts) {
                           return hosts.param.empty() ? "One" : hosts.param[1] == 0 ? "TwoOfTwo" : "Four";
                         });

// On one host: from another nobody sees who is stopped.
TEST(StoppedRank, IsNamedByRanksThatWaitInOtherGroups_WithinTwiceTheDeadline) {
  expect_within(2 * kDeadline, [] {
    std::chrono::nanoseconds took{};
    for (const std::string& error : struck_by(SIGSTOP, {}, kDeadline, took))
      EXPECT_THAT(error, AllOf(HasSubstr("kTimeout"), HasSubstr("rank 3"), HasSubstr("is stopped"),
                               HasSubstr("last in step 7: forward of block3")));
    return took;
  });
}

void expect_the_reason(const std::vector<Error>& errors, const std::string& reason) {
  for (const Error& error : errors) {
    EXPECT_EQ(error.code(), Code::kAborted) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank 3 aborted: " + reason));
  }
}

TEST(Abort, OfAnyGroupEndsAllGroupsOfAllRanks_ByItsReason) {
  for (const char* which : {"world", "row", "column"}) {
    for (const bool asynchronous : {false, true}) {
      const auto begin = steady_clock::now();
      const auto errors = errors_of(kRanks, [&](Communicator& world) {
        Grid grid(world);
        if (world.rank() != kVictim) return wait_for_another(grid, world.rank(), asynchronous);
        std::this_thread::sleep_for(30ms);
        (which[0] == 'w' ? world : which[0] == 'r' ? grid.row : grid.column).abort("its memory is full");
        try {
          (which[0] == 'r' ? grid.column : grid.row).barrier();
        } catch (const Error&) {
          world.barrier();
        }
      });
      EXPECT_LT(steady_clock::now() - begin, 2s) << which;
      expect_the_reason(errors, "its memory is full");
    }
  }
}

TEST(Abort, ReachesRanksThroughGroupsThatShareNoneWithIt_AlsoWithoutTheWorld) {
  const auto begin = steady_clock::now();
  std::atomic<int> ended{0};
  std::vector<Error> errors(kRanks, Error(Code::kBug, "nothing"));
  run_inproc(kRanks, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Grid grid(world);
    world.barrier();
    { const Communicator closed = std::move(world); }
    try {
      if (rank == kVictim) {
        std::this_thread::sleep_for(30ms);
        grid.column.abort("its memory is full");
        grid.row.barrier();
      } else {
        wait_for_another(grid, static_cast<Rank>(rank));
      }
    } catch (const Error& error) {
      errors[rank] = error;
    }
    ++ended;
    while (ended.load() < kRanks) std::this_thread::sleep_for(1ms);
  });
  EXPECT_LT(steady_clock::now() - begin, 2s);
  expect_the_reason(errors, "its memory is full");
}

TEST(Shrink, BeginsGroupsThatFailByThemselves_WhileAllOldOnesAreOver) {
  std::latch made(kRanks);  // who begins to shrink ends the groups that others are still making
  run_inproc(kRanks, [&](Communicator& world) {
    Grid old(world);
    made.arrive_and_wait();
    Communicator again = world.shrink();
    Grid grid(again);
    std::vector<int32_t> x = {1};
    grid.row.all_reduce(x);
    grid.column.all_reduce(x);
    require(x[0] == kRanks, "sum");
    EXPECT_THROW(old.row.barrier(), Error);
    EXPECT_THROW(world.barrier(), Error);
    again.barrier();
  });
}

}  // namespace
}  // namespace herd
