// One of four processes is killed, stopped or delayed before every step of every algorithm in turn: the others err in
// time, name the right rank, never call a slow one dead, and nothing leaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "herd/base/error.h"
#include "herd/comm/collective_call.h"
#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "herd/memory/shared_memory.h"
#include "herd/schedule/meaning.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/faults.h"
#include "tests/comm/lockstep_world.h"

namespace herd::testing_support {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr auto kDeadline = 200ms;  // of a first attempt
constexpr int kMostAttempts = 10;
constexpr auto kPause = 60ms;

enum class Chaos { kKill, kStop, kDelay };

// What the survivors measured, in memory that all processes share.
struct Measured {
  std::atomic<int64_t> struck{0};     // when, in ns of the steady clock
  std::atomic<int64_t> latest_us{0};  // from then to the last survivor's error
  std::atomic<bool> late{false};      // whether one erred after more than twice the deadline, or in vain
  std::atomic<int> errors{0};
};

int64_t now_ns() { return steady_clock::now().time_since_epoch().count(); }

void strike(Chaos chaos, Measured& measured) {
  measured.struck = now_ns();
  if (chaos == Chaos::kKill) std::raise(SIGKILL);
  if (chaos == Chaos::kStop) std::raise(SIGSTOP);
  if (chaos == Chaos::kDelay) std::this_thread::sleep_for(kPause);
}

// One operation by the algorithm, then a barrier: some algorithms let others finish without the victim.
// `begun`: when the one that runs was called, each having a deadline of its own.
void operate(Communicator& world, const Schedule& schedule, std::byte* in, std::byte* out, milliseconds deadline,
             steady_clock::time_point& begun) {
  comm::GroupState& group = comm::CommunicatorTestAccess::group(world);
  comm::CollectiveCall call = call_of(schedule, in, out);
  call.deadline = deadline;
  comm::PendingOp task;
  group.prepare(task, call);
  begun = steady_clock::now();
  group.engine().run(task);
  begun = steady_clock::now();
  world.barrier({.deadline = deadline});
}

void survive(Communicator& world, const Schedule& schedule, std::byte* in, std::byte* out, milliseconds deadline,
             Chaos chaos, Rank victim, Measured& measured) {
  auto begun = steady_clock::now();
  const std::string rank = "rank " + std::to_string(victim);
  try {
    world.barrier();  // no rank is late; the victim may be through first
    operate(world, schedule, in, out, deadline, begun);
    if (chaos != Chaos::kDelay) throw std::runtime_error("nothing was noticed");
    return;
  } catch (const Error& error) {
    const auto took = steady_clock::now() - begun;
    const int64_t late_us = (now_ns() - measured.struck) / 1000;
    const std::string text = error.what();
    const auto says = [&](const std::string& words) { return text.find(words) != std::string::npos; };
    ++measured.errors;
    for (int64_t latest = measured.latest_us;
         latest < late_us && !measured.latest_us.compare_exchange_weak(latest, late_us);) {
    }
    if (took > 2 * deadline || (error.code() == Code::kTimeout && chaos != Chaos::kStop)) measured.late = true;
    if (took > 2 * deadline) throw std::runtime_error("after " + std::to_string(took / 1ms) + " ms: " + text);
    if (chaos == Chaos::kDelay) throw std::runtime_error("a slow rank is an error: " + text);
    if (chaos == Chaos::kKill && (error.code() != Code::kPeerLost || !says(rank + " is lost")))
      throw std::runtime_error("the killed rank is not named: " + text);
    if (chaos == Chaos::kStop && (error.code() != Code::kTimeout || !says(rank) || !says("is stopped") || says("lost")))
      throw std::runtime_error("the stopped rank is not named: " + text);
  }
}

struct Totals {
  int runs = 0;
  int64_t latest_us[3] = {0, 0, 0};
};

// A late report is tried again, with a longer deadline each time, and so is a deadline that passed though nobody stood
// still for so long: other programs may have held the cores.
void strike_at(const std::vector<Schedule>& all, Rank victim, uint32_t step, Chaos chaos, Totals& totals,
               int attempt = 1) {
  const milliseconds deadline = attempt * kDeadline;
  SharedMemory shared = SharedMemory::create("herd:chaos", kPageBytes);
  shared.commit(0, kPageBytes);
  auto& measured = *new (shared.data()) Measured;
  ForkWorld processes(kRanks, [&](Communicator& joined) {
    const Schedule& schedule = all[static_cast<size_t>(joined.rank())];
    // A world that runs this very schedule: compositions need more than a name.
    Communicator world = comm::CommunicatorTestAccess::make(
        comm::CommunicatorTestAccess::context(joined).transport,
        [&](std::string_view, const CollectiveRequest& request) {
          return request.collective == schedule.collective ? schedule : build_schedule("dissemination_signal", request);
        });
    SymmetricMemory memory = world.allocate_symmetric(1 << 16);
    auto* in = static_cast<std::byte*>(memory.data());
    if (world.rank() != victim) return survive(world, schedule, in, in + (1 << 15), deadline, chaos, victim, measured);
    world.barrier();
    comm::CommunicatorTestAccess::group(world).executor().fault().before_step = [&,
                                                                                 begun = false](uint32_t now) mutable {
      if (now != step || begun) return;
      begun = true;
      strike(chaos, measured);
    };
    steady_clock::time_point begun;
    operate(world, schedule, in, in + (1 << 15), deadline, begun);
  });
  for (Rank rank = 0; rank < kRanks; ++rank) {
    siginfo_t ended = {};
    if (rank != victim) waitid(P_PID, static_cast<id_t>(processes.pid(rank)), &ended, WEXITED | WNOWAIT);
  }
  if (chaos == Chaos::kStop) processes.kill(victim, SIGKILL);
  const auto ends = processes.wait();
  if (attempt < kMostAttempts && (measured.late || (chaos == Chaos::kKill && measured.latest_us >= 100'000)))
    return strike_at(all, victim, step, chaos, totals, attempt + 1);
  const std::string what = std::string(collective_name(all[0].collective)) + " " + all[0].algorithm + ", rank " +
                           std::to_string(victim) + " step " + std::to_string(step) +
                           (chaos == Chaos::kKill   ? " killed"
                            : chaos == Chaos::kStop ? " stopped"
                                                    : " delayed");
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == victim && chaos != Chaos::kDelay) continue;
    EXPECT_EQ(ends[static_cast<size_t>(rank)].error, "") << what << ": rank " << rank;
  }
  ++totals.runs;
  int64_t& latest = totals.latest_us[static_cast<int>(chaos)];
  latest = std::max<int64_t>(latest, measured.latest_us);
  if (chaos == Chaos::kKill) {
    EXPECT_LT(measured.latest_us, 100'000) << what << ": us until the last survivor knew";
  }
}

class ChaosShm : public testing::TestWithParam<AlgorithmInfo> {};

TEST_P(ChaosShm, EverySurvivorErrsInTimeAndNamesTheRightRank) {
  const int files = entries_of("/proc/self/fd"), objects = entries_of("/dev/shm");
  Totals totals;
  CollectiveRequest request{.collective = GetParam().collective,
                            .num_ranks = kRanks,
                            .root = 1,
                            .elements = 40,
                            .dtype = DType::kF64,
                            .in_place = false};
  if (is_composition(GetParam())) {
    request = composition_request(GetParam());
    if (request.num_ranks != kRanks) GTEST_SKIP() << "has " << request.num_ranks << " ranks";
    request.dtype = DType::kF64;
  }
  if (!serves(GetParam(), request)) request.in_place = true;
  const auto all = build_all_ranks(GetParam().name, request);
  static int number = 0;
  for (Rank victim = 0; victim < kRanks; ++victim) {
    for (uint32_t step = 0; step < all[static_cast<size_t>(victim)].steps.size(); ++step) {
      for (const Chaos chaos : {Chaos::kKill, Chaos::kStop, Chaos::kDelay}) {
        // A sample of a few runs for each algorithm, not the same victim and step for each.
        if (!full_tests() && ++number % (chaos == Chaos::kKill ? 41 : 97) != 0) continue;
        strike_at(all, victim, step, chaos, totals);
      }
    }
  }
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
  EXPECT_EQ(entries_of("/dev/shm"), objects);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  if (totals.runs > 0) {
    std::printf("  %s %s: %d runs; latest survivor knew of a kill after %.1f ms, of a stop after %.1f ms\n",
                std::string(collective_name(GetParam().collective)).c_str(), std::string(GetParam().name).c_str(),
                totals.runs, static_cast<double>(totals.latest_us[0]) / 1000,
                static_cast<double>(totals.latest_us[1]) / 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChaosShm, testing::ValuesIn(every_algorithm()), [](const auto& one) {
  return std::string(collective_name(one.param.collective)) + "_" + std::string(one.param.name);
});

}  // namespace
}  // namespace herd::testing_support
