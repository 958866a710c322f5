// One rank of four, on two hosts (as far as they know), is killed, stopped or delayed before each step of each
// algorithm in turn: every survivor errs in time, with the right rank's name. A sample, all with HERD_FULL_TESTS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "herd/base/error.h"
#include "herd/collectives/registry.h"
#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "herd/transport/wire.h"

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
  std::vector<float> warm(1000);
  comm.all_reduce(warm, {.algorithm = "ring"});
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

void check(const Case& c) {
  SCOPED_TRACE(testing::PrintToString(c));
  WorldOptions hosts;
  hosts.host_of = {0, 0, 1, 1};
  ForkWorld world(
      kRanks, [&](Communicator& comm) { body(comm, c); }, hosts);
  const std::string name = "rank " + std::to_string(c.victim);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == c.victim) continue;
    const std::string error = world.wait(rank).error;
    const bool killed = c.blow == Blow::kKill;
    EXPECT_THAT(error, HasSubstr(killed ? "kPeerLost: " + name + " is lost" : "kTimeout: ")) << "rank " << rank;
    EXPECT_THAT(error, HasSubstr(name));
    EXPECT_LT(milliseconds_of(error), killed ? 1000 : 2 * kDeadline / 1ms) << error;
    if (killed) continue;
    EXPECT_THAT(error, Not(HasSubstr("is lost")));
    EXPECT_THAT(error, Not(HasSubstr("is gone")));
    if (c.blow == Blow::kStop) {
      EXPECT_THAT(error, testing::ContainsRegex(name + "[^\n]*is stopped"));
    }
  }
}

TEST(UcxChaos, EverySurvivorErrsInTime_WithTheRightName) {
  if (transport::ucx_version().empty()) GTEST_SKIP() << "this build has no UCX";
  const bool full = std::getenv("HERD_FULL_TESTS") != nullptr;
  int number = 0;
  for (Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                Collective::kBroadcast, Collective::kBarrier}) {
    for (const AlgorithmInfo& algorithm : algorithms(collective)) {
      if (algorithm.needs != Needs::kMessages) continue;
      for (Rank victim = 0; victim < kRanks; ++victim) {
        CollectiveRequest request = request_of(collective, victim);
        if (!why_not(algorithm, request).empty()) continue;
        const int steps = static_cast<int>(build_schedule(algorithm.name, request).steps.size());
        for (int step = 0; step < steps; ++step) {
          for (Blow blow : {Blow::kKill, Blow::kStop, Blow::kDelay}) {
            if (full || ++number % 241 == 0) check({collective, std::string(algorithm.name), blow, victim, step});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace herd
