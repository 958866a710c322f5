// Four ranks in several groups each. One is killed, stopped, or goes over its budget, before an op of every kind of the
// step: all ranks name it and what happened, soon, whichever group they wait in. A sample; all of it with
// HERD_FULL_TESTS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "herd/bridge/budget_allocator.h"
#include "herd/memory/shared_memory.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/techniques.h"
#include "killed_job.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kRanks = 4;
constexpr int64_t kDeadlyStep = 1;
constexpr auto kDeadline = 3000ms;  // of an operation

enum class Blow { kKill, kStop, kOverBudget };
constexpr Blow kBlows[] = {Blow::kKill, Blow::kStop, Blow::kOverBudget};

struct Times {  // in memory that all processes share
  std::atomic<int64_t> struck_ns{0}, last_ns{0};
};

int64_t now_ns() { return steady_clock::now().time_since_epoch().count(); }

void strike(Blow blow, Times& times) {
  times.struck_ns = now_ns();
  if (blow == Blow::kKill) raise(SIGKILL);
  if (blow == Blow::kStop) raise(SIGSTOP);
  DeviceMemory::set_budget(1);
  at::empty({1024});
}

// Of one rank whose error says what it does in the words of `blow`, and that the victim was in `op`: the op with its
// micro-batch, the rank, and where that is in the mesh, its stage included.
testing::Matcher<std::string> names(Rank victim, const std::string& op, Blow blow, bool is_victim, bool served) {
  const std::string rank = "rank " + std::to_string(victim);
  // A server that ends tells the ranks that it serves why. It may be the first of whom they hear.
  const auto code = [&](const char* first) {
    return served
               ? testing::Matcher<std::string>(AnyOf(HasSubstr(first), HasSubstr("kAborted"), HasSubstr("kPeerLost")))
               : HasSubstr(first);
  };
  if (served && blow == Blow::kStop) return AllOf(HasSubstr("kTimeout"), HasSubstr(rank));  // servers see no ops
  if (blow == Blow::kKill)
    return AllOf(code("kPeerLost"), HasSubstr(rank + " is lost"), HasSubstr("is gone, last in " + op));
  if (blow == Blow::kStop)
    return AllOf(HasSubstr("kTimeout"), HasSubstr(rank),
                 HasSubstr("is stopped (SIGSTOP or a debugger), last in " + op));
  return AllOf(is_victim ? HasSubstr("kOverBudget: step 1: ") : code("kAborted"), HasSubstr(op),
               HasSubstr("do not fit the device budget"));
}

// With servers the update waits for no norm, and so nobody clips.
spec::RunFile small_run(const std::string& mesh) {
  std::vector<std::string> keys;
  if (mesh.find("server") != std::string::npos) keys = {"optimizer.clip=0", "comm.deadline_s=2"};
  return spec::parse_run_text(
      "[model]\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 40\n[data]\nkind = \"random\"\n"
      "[train]\nsteps = 3\nbatch = 8\nmicro_batch = 1\n[optimizer]\nlr = 1e-3\n[mesh]\n" +
          mesh,
      "test", keys);
}

struct Outcome {
  std::vector<std::string> errors;  // by rank
  std::chrono::nanoseconds took{};  // from the blow to the end of the last rank but the victim
  bool struck = false;
};

Outcome strike_at(const spec::RunFile& run, Rank victim, int op, Blow blow) {
  TemporaryFolder folder;
  SharedMemory shared = SharedMemory::create("herd:first_cause", kPageBytes);
  shared.commit(0, kPageBytes);
  auto& times = *new (shared.data()) Times;
  DeviceMemory::install();
  ForkWorld world(kRanks, [&](Communicator& comm) {
    try {
      killed_job::run_rank(
          comm, run, folder.path(),
          {.rank = victim, .step = kDeadlyStep, .op = op, .blow = [&] { strike(blow, times); }, .deadline = kDeadline});
    } catch (...) {  // what was in flight has ended too
      const int64_t now = now_ns();
      for (int64_t last = times.last_ns; last < now && !times.last_ns.compare_exchange_weak(last, now);) {
      }
      throw;
    }
  });
  Outcome outcome;
  outcome.errors.resize(kRanks);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank != victim) outcome.errors[static_cast<size_t>(rank)] = world.wait(rank).error;
  }
  if (blow == Blow::kStop) world.kill(victim, SIGKILL);
  outcome.errors[static_cast<size_t>(victim)] = world.wait(victim).error;
  outcome.took = std::chrono::nanoseconds(times.last_ns - times.struck_ns);
  outcome.struck = times.struck_ns != 0;
  return outcome;
}

class FirstCause : public testing::TestWithParam<std::string> {
 protected:
  // What comes too late is tried again: other programs may have held the cores. So is what names another op: the
  // victim's lanes run at once, and one may have begun an op between this one's begin and the blow.
  static void expect_named_by_all(const spec::RunFile& run, Rank victim, int op, const std::string& name, Blow blow,
                                  int attempts = 10) {
    const auto limit = blow == Blow::kStop ? 2 * kDeadline : 1000ms;
    const bool served = run.strategy.sync != "all_reduce", shows_op = !served || blow != Blow::kStop;
    const Outcome outcome = strike_at(run, victim, op, blow);
    const bool other_op =
        shows_op && std::none_of(outcome.errors.begin(), outcome.errors.end(),
                                 [&](const std::string& error) { return error.find(name) != std::string::npos; });
    if (attempts > 1 && (!outcome.struck || outcome.took >= limit || other_op))
      return expect_named_by_all(run, victim, op, name, blow, attempts - 1);
    EXPECT_TRUE(outcome.struck);
    EXPECT_LT(outcome.took, limit) << "until the last rank knew";
    for (Rank rank = 0; rank < kRanks; ++rank) {
      if (rank == victim && blow != Blow::kOverBudget) continue;
      EXPECT_THAT(outcome.errors[static_cast<size_t>(rank)], names(victim, name, blow, rank == victim, served))
          << "rank " << rank;
    }
  }
};

TEST_P(FirstCause, IsNamedByAllRanks_WhateverHappensToOneBeforeAnOpOfAnyKind) {
  const bool full = std::getenv("HERD_FULL_TESTS") != nullptr;
  const spec::RunFile run = small_run(GetParam());
  const spec::Layout layout = strategies::trainable_layout(run, kRanks);
  const spec::ModelTable table = spec::model_table(run, layout.micro_batch);
  int number = 0;
  for (Rank victim = 0; victim < kRanks; ++victim) {
    const program::Program step = strategies::compile_step(run, table, layout, victim);
    std::set<std::pair<program::OpKind, int>> seen;  // with axis
    for (size_t op = 0; op < step.ops.size(); ++op) {
      if (!seen.insert({step.ops[op].kind, step.ops[op].axis}).second) continue;
      for (const Blow blow : kBlows) {
        if (!full && ++number % 19 != 0) continue;
        SCOPED_TRACE("blow " + std::to_string(static_cast<int>(blow)) + " to rank " + std::to_string(victim) +
                     " before " + program::describe(step, step.ops[op]));
        const std::string name = "step " + std::to_string(kDeadlyStep) + ": " + program::describe(step, step.ops[op]) +
                                 " on " + program::rank_name(step);
        expect_named_by_all(run, victim, static_cast<int>(op), name, blow);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, FirstCause,
                         testing::Values("pp = 2\n", "fsdp = 2\n", "pp = 2\n[strategy]\npipeline = \"zero_bubble_v\"\n",
                                         "[strategy]\nsync = \"server\"\nservers = 2\n"),
                         [](const auto& mesh) {
                           return mesh.param.starts_with("[")        ? "Data4WithServers2"
                                  : mesh.param.starts_with("fsdp")   ? "Data2OfShards2"
                                  : mesh.param.find("bubble") < 1000 ? "FoldedPipeline2OfData2"
                                                                     : "Pipeline2OfData2";
                         });

}  // namespace
}  // namespace herd::train
