// One rank of four, on two hosts (as far as they know), is killed, stopped or delayed before each step of each
// algorithm in turn: every survivor errs in time, with the right rank's name. A sample, all with HERD_FULL_TESTS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/collectives/registry.h"
#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/needs_ucx.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;

constexpr auto kDeadline = 200ms;
constexpr int kRanks = 4;
constexpr int64_t kElements = 60'000;  // of fp32: long messages, in several pieces

enum class Blow { kKill, kStop, kDelay };

struct Case {
  Collective collective;
  std::string algorithm;
  Blow blow;
  Rank victim;
  int step;
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
          .in_place = collective == Collective::kAllReduce || collective == Collective::kBroadcast,
          .hosts = {0, 0, 1, 1}};
}

void strike(Blow blow) {
  if (blow == Blow::kKill) std::raise(SIGKILL);
  if (blow == Blow::kStop) std::raise(SIGSTOP);
  if (blow == Blow::kDelay) std::this_thread::sleep_for(4 * kDeadline);
}

void run_one(Communicator& comm, const Case& c) {
  std::vector<float> x(kElements, 1), part(kElements / kRanks);
  const OpOptions call = {.deadline = kDeadline, .algorithm = c.algorithm};
  switch (c.collective) {
    case Collective::kAllReduce:
      return comm.all_reduce(x, call);
    case Collective::kAllGather:
      return comm.all_gather(part, x, call);
    case Collective::kReduceScatter:
      return comm.reduce_scatter(x, part, call);
    case Collective::kBroadcast:
      return comm.broadcast(x, 0, call);
    default:
      return comm.barrier(call);
  }
}

// The victim is struck in the operation; the barrier errs for those who were through with it before.
void body(Communicator& comm, const Case& c) {
  comm.barrier();
  comm::Operation& operation = comm::Access::group(comm).operation();
  if (comm.rank() == c.victim) {
    operation.fault().skip_turn = [&, struck = false]() mutable {
      if (!struck && operation.steps_done() >= static_cast<uint64_t>(c.step)) {
        struck = true;
        strike(c.blow);
      }
      return false;
    };
  }
  auto begin = steady_clock::now();
  try {
    run_one(comm, c);
    begin = steady_clock::now();
    comm.barrier({.deadline = kDeadline});
  } catch (const Error& error) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin);
    throw Error(error.code(), error.message() + "\n<after " + std::to_string(took.count()) + " ms>");
  }
}

int64_t milliseconds_of(const std::string& error) {
  const size_t at = error.rfind("<after ");
  return at == std::string::npos ? -1 : std::atoll(error.c_str() + at + 7);
}

void expect_errors_in_time(const Case& c) {
  SCOPED_TRACE(testing::PrintToString(c));
  ForkWorld world(kRanks, [&](Communicator& comm) { body(comm, c); }, {.host_of = {0, 0, 1, 1}});
  const bool killed = c.blow == Blow::kKill;
  const int64_t limit_ms = killed ? 1000 : 2 * kDeadline / 1ms;
  std::vector<std::string> errors;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == c.victim) continue;
    errors.push_back(world.wait(rank).error);
  }
  const std::string name = "rank " + std::to_string(c.victim);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr(killed ? "kPeerLost: " + name + " is lost" : "kTimeout: "));
    EXPECT_THAT(error, HasSubstr(name));
    EXPECT_LT(milliseconds_of(error), limit_ms) << error;
    if (killed) continue;
    EXPECT_THAT(error, Not(HasSubstr("is lost")));
    EXPECT_THAT(error, Not(HasSubstr("is gone")));
    if (c.blow == Blow::kStop) {
      EXPECT_THAT(error, testing::ContainsRegex(name + "[^\n]*is stopped"));
    }
  }
}

std::vector<AlgorithmInfo> algorithms_of_messages() {
  std::vector<AlgorithmInfo> all;
  for (Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                Collective::kBroadcast, Collective::kBarrier}) {
    for (const AlgorithmInfo& algorithm : algorithms(collective)) {
      if (algorithm.needs != Needs::kMessages) continue;
      if (why_not(algorithm, request_of(collective, 0)).empty()) all.push_back(algorithm);
    }
  }
  return all;
}

class UcxChaos : public testing_support::NeedsUcx, public testing::WithParamInterface<AlgorithmInfo> {};

TEST_P(UcxChaos, EverySurvivorErrsInTime_WithTheRightName) {
  const bool full = std::getenv("HERD_FULL_TESTS") != nullptr;
  static int number = 0;
  int runs = 0;
  for (Rank victim = 0; victim < kRanks; ++victim) {
    const CollectiveRequest request = request_of(GetParam().collective, victim);
    const int steps = static_cast<int>(build_schedule(GetParam().name, request).steps.size());
    for (int step = 0; step < steps; ++step) {
      for (Blow blow : {Blow::kKill, Blow::kStop, Blow::kDelay}) {
        if (!full && ++number % 241 != 0) continue;
        const Case one = {GetParam().collective, std::string(GetParam().name), blow, victim, step};
        ++runs;
        expect_errors_in_time(one);
      }
    }
  }
  RecordProperty("runs", runs);
}

INSTANTIATE_TEST_SUITE_P(All, UcxChaos, testing::ValuesIn(algorithms_of_messages()), [](const auto& one) {
  return std::string(collective_name(one.param.collective)) + "_" + std::string(one.param.name);
});

}  // namespace
}  // namespace herd
