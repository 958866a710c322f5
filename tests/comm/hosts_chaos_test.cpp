// One rank of four, on two hosts (as far as they know), is killed, stopped or delayed before each step of each
// algorithm in turn: every survivor errs in time, with the right rank's name, and nothing leaks. A sample, all with
// HERD_FULL_TESTS=1.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/faults.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;

constexpr auto kDeadline = 200ms;  // of a first attempt
constexpr int kMostAttempts = 10;
constexpr int kRanks = 4;
constexpr int64_t kElements = 60'000;  // of fp32: long messages, in several pieces
constexpr size_t kWorlds = 16;         // at once
constexpr auto kApart = 20ms;          // so much later than the one before each is struck

enum class Blow { kKill, kStop, kDelay };

struct Case {
  Collective collective;
  std::string algorithm;
  Blow blow;
  Rank victim;
  int step;
  std::chrono::milliseconds deadline = kDeadline;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    const char* const names[] = {"kill", "stop", "delay"};
    return out << collective_name(c.collective) << " " << c.algorithm << ": " << names[static_cast<int>(c.blow)]
               << " rank " << c.victim << " before step " << c.step;
  }
};

CollectiveRequest request_of(Collective collective, Rank self) {
  return {.collective = collective,
          .self = self,
          .num_ranks = kRanks,
          .elements = collective == Collective::kBarrier ? 0 : kElements,
          .in_place = collective == Collective::kAllReduce || collective == Collective::kBroadcast ||
                      collective == Collective::kReduce,
          .hosts = {0, 0, 1, 1}};
}

void strike(const Case& c) {
  if (c.blow == Blow::kKill) std::raise(SIGKILL);
  if (c.blow == Blow::kStop) std::raise(SIGSTOP);
  if (c.blow == Blow::kDelay) std::this_thread::sleep_for(4 * c.deadline);
}

void run_one(Communicator& comm, const Case& c) {
  std::vector<float> x(kElements, 1), y(kElements), part(kElements / kRanks);
  const OpOptions call = {.deadline = c.deadline, .algorithm = c.algorithm};
  switch (c.collective) {
    case Collective::kAllReduce:
      return comm.all_reduce(x, call);
    case Collective::kAllGather:
      return comm.all_gather(part, x, call);
    case Collective::kReduceScatter:
      return comm.reduce_scatter(x, part, call);
    case Collective::kBroadcast:
      return comm.broadcast(x, 0, call);
    case Collective::kReduce:
      return comm.reduce(x, 0, call);
    case Collective::kGather:
      return comm.gather(part, x, 0, call);
    case Collective::kScatter:
      return comm.scatter(x, part, 0, call);
    case Collective::kAllToAll:
      return comm.all_to_all(x, y, call);
    case Collective::kBarrier:
      return comm.barrier(call);
  }
}

// Forked processes hold it as well: wait() returns once every one of them has opened it, or has ended.
class Gate {
 public:
  Gate() {
    if (pipe2(ends_, O_CLOEXEC) != 0) throw_errno(Code::kStorage, "create a pipe", errno);
  }
  ~Gate() {
    open();
    close(ends_[0]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  void wait() const {
    char none = 0;
    while (read(ends_[0], &none, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  int ends_[2] = {-1, -1};
};

// The victim is struck in the operation; the barrier errs for those who were through with it before.
void body(Communicator& comm, const Case& c, Gate& reported) {
  comm::ScheduleExecutor& executor = comm::CommunicatorTestAccess::group(comm).executor();
  if (comm.rank() == c.victim) {
    reported.open();
    executor.fault().skip_turn = [&, struck = false]() mutable {
      if (!struck && executor.steps_done() >= static_cast<uint64_t>(c.step)) {
        struck = true;
        strike(c);
      }
      return false;
    };
  }
  auto begin = steady_clock::now();
  try {
    run_one(comm, c);
    begin = steady_clock::now();
    comm.barrier({.deadline = c.deadline});
  } catch (const Error& error) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin);
    reported.open();
    throw Error(error.code(), error.message() + "\n<after " + std::to_string(took.count()) + " ms>");
  }
}

int64_t milliseconds_of(const std::string& error) {
  const size_t at = error.rfind("<after ");
  return at == std::string::npos ? -1 : std::atoll(error.c_str() + at + 7);
}

// The latest error in ms, by blow.
using Latest = std::array<int64_t, 3>;

int64_t limit_ms_of(const Case& c) { return c.blow == Blow::kKill ? 1000 : 2 * c.deadline / 1ms; }

// Whether a survivor erred later than the limit, or after a deadline that ran out before the kill was noticed.
bool is_late(const Case& c, ForkWorld& world) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == c.victim) continue;
    const std::string error = world.wait(rank).error;
    if (milliseconds_of(error) >= limit_ms_of(c)) return true;
    if (c.blow == Blow::kKill && error.starts_with("kTimeout")) return true;
  }
  return false;
}

void expect_errors_in_time(const Case& c, ForkWorld& world, Latest& latest) {
  SCOPED_TRACE(testing::PrintToString(c));
  const bool killed = c.blow == Blow::kKill;
  const int64_t limit_ms = limit_ms_of(c);
  const std::string name = "rank " + std::to_string(c.victim);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == c.victim && c.blow != Blow::kDelay) continue;
    const std::string error = world.wait(rank).error;
    EXPECT_THAT(error, HasSubstr(killed ? "kPeerLost: " + name + " is lost" : "kTimeout: "));
    EXPECT_THAT(error, HasSubstr(name));
    if (rank != c.victim) {
      EXPECT_GE(milliseconds_of(error), 0) << error;
      EXPECT_LT(milliseconds_of(error), limit_ms) << error;
      int64_t& most = latest[static_cast<size_t>(c.blow)];
      most = std::max(most, milliseconds_of(error));
    }
    if (killed) continue;
    EXPECT_THAT(error, Not(HasSubstr("is lost")));
    EXPECT_THAT(error, Not(HasSubstr("is gone")));
    if (c.blow == Blow::kStop) {
      EXPECT_THAT(error, testing::ContainsRegex(name + "[^\n]*is stopped"));
    }
  }
}

// A world whose ranks have met, and wait for `go`.
class Trial {
 public:
  Trial(const Case& what, Gate& go, std::chrono::milliseconds pause) : what_(what) {
    Gate met;
    world_ = std::make_unique<ForkWorld>(
        kRanks,
        [&, pause](Communicator& comm) {
          go.open();
          comm.barrier();
          met.open();
          go.wait();
          std::this_thread::sleep_for(pause);
          body(comm, what_, reported_);
        },
        testing_support::on_hosts({0, 0, 1, 1}));
    reported_.open();
    met.open();
    met.wait();
  }

  void await_reports() const { reported_.wait(); }
  const Case& what() const { return what_; }
  bool is_late() { return herd::is_late(what_, *world_); }
  void check(Latest& latest) { expect_errors_in_time(what_, *world_, latest); }

 private:
  Case what_;
  Gate reported_;
  std::unique_ptr<ForkWorld> world_;
};

// Worlds are made while those before them part, which they wait for, and are struck when none is made: only that takes
// the cores for long, and reports would be late for it.
class Trials {
 public:
  void run(std::span<const Case> cases) {
    Gate go;
    std::vector<std::unique_ptr<Trial>> made;
    for (const Case& one : cases) made.push_back(std::make_unique<Trial>(one, go, made.size() * kApart));
    finish();
    go.open();
    for (const auto& trial : made) trial->await_reports();
    running_ = std::move(made);
  }

  // What came too late is tried again by itself, with a longer deadline each time: other programs may have held the
  // cores.
  void finish() {
    for (auto& trial : running_) {
      for (int attempt = 2; attempt <= kMostAttempts && trial->is_late(); ++attempt) {
        Case what = trial->what();
        what.deadline = attempt * kDeadline;
        Gate go;
        trial = std::make_unique<Trial>(what, go, 0ms);
        go.open();
      }
      trial->check(latest_);
    }
    running_.clear();
  }

  const Latest& latest() const { return latest_; }

 private:
  std::vector<std::unique_ptr<Trial>> running_;
  Latest latest_ = {};
};

std::vector<AlgorithmInfo> algorithms_of_messages() {
  std::vector<AlgorithmInfo> all;
  for (const AlgorithmInfo& algorithm : testing_support::every_algorithm()) {
    if (algorithm.needs != Needs::kMessages) continue;
    if (why_not(algorithm, request_of(algorithm.collective, 0)).empty()) all.push_back(algorithm);
  }
  return all;
}

class HostsChaos : public testing_support::BetweenHosts, public testing::WithParamInterface<AlgorithmInfo> {};

TEST_P(HostsChaos, EverySurvivorErrsInTime_WithTheRightName) {
  const int files = testing_support::entries_of("/proc/self/fd"), objects = testing_support::entries_of("/dev/shm");
  static int number = 0;
  std::vector<Case> cases;
  for (Rank victim = 0; victim < kRanks; ++victim) {
    const CollectiveRequest request = request_of(GetParam().collective, victim);
    const int steps = static_cast<int>(build_schedule(GetParam().name, request).steps.size());
    for (int step = 0; step < steps; ++step) {
      for (Blow blow : {Blow::kKill, Blow::kStop, Blow::kDelay}) {
        if (!testing_support::full_tests() && ++number % 241 != 0) continue;
        cases.push_back({GetParam().collective, std::string(GetParam().name), blow, victim, step, kDeadline});
      }
    }
  }
  Trials trials;
  for (std::span<const Case> left = cases; !left.empty(); left = left.subspan(std::min(kWorlds, left.size()))) {
    trials.run(left.first(std::min(kWorlds, left.size())));
  }
  trials.finish();
  EXPECT_EQ(testing_support::entries_of("/proc/self/fd"), files);
  EXPECT_EQ(testing_support::entries_of("/dev/shm"), objects);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  if (cases.empty()) return;
  const Latest& latest = trials.latest();
  std::printf(
      "  %s %s: %zu runs; the latest survivor erred %lld, %lld and %lld ms after a call with a kill, stop, delay\n",
      std::string(collective_name(GetParam().collective)).c_str(), std::string(GetParam().name).c_str(), cases.size(),
      static_cast<long long>(latest[0]), static_cast<long long>(latest[1]), static_cast<long long>(latest[2]));
}

INSTANTIATE_TEST_SUITE_P(All, HostsChaos, testing::ValuesIn(algorithms_of_messages()), [](const auto& one) {
  return std::string(collective_name(one.param.collective)) + "_" + std::string(one.param.name);
});

}  // namespace
}  // namespace herd
