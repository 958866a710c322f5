// Whole trainings with parameter servers, of which a rank that trains or a server is killed before any op of a step:
// the others name it within a second, or go on where they may, and the next job goes on from a checkpoint that has each
// update that it states. A sample; all of it with HERD_FULL_TESTS=1.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "herd/comm/fork_world.h"
#include "herd/memory/shared_memory.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/train/trainer.h"
#include "tests/support/expect_within.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int64_t kServedSteps = 4, kFatalStep = 2;
constexpr size_t kMostRanks = 4;

struct ServedJob {
  std::string name;
  int workers = 2, dedicated = 0;
  std::vector<std::string> keys;
  bool runs_ahead = false;
  int slice = 0;  // which kill of all a sample takes
  int ranks() const { return workers + dedicated; }
};

// Who is killed, and before which op: one of its own, or where it only serves one of rank 0.
struct Kill {
  Rank victim = -1;
  std::string op = {};
  bool survives = false;
};

struct SharedTimes {
  std::atomic<int64_t> struck_ns{0};
  std::atomic<int64_t> known_ns{0};  // the last rank has ended; or where ranks go on, the next step is done
  std::array<std::atomic<pid_t>, kMostRanks> pids{};
};

struct ServedEnd {
  std::vector<RankEnd> ranks;
  std::chrono::nanoseconds took{};
};

int64_t clock_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

class KilledServers : public testing::TestWithParam<ServedJob> {
 protected:
  spec::RunFile run_in(const TemporaryFolder& folder) const {
    spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 40\n[data]\nkind = \"random\"\n[train]\n"
        "batch = 12\nmicro_batch = 2\neval_every = 0\n[optimizer]\nlr = 1e-3\nclip = 0\n[checkpoint]\nevery = 1\n"
        "keep = 2\n[health]\nreplica_hash_every = 0\n[log]\ntrace_steps = 0\nname = \"run\"\n",
        "test", GetParam().keys);
    run.strategy.dedicated_servers = GetParam().dedicated;
    run.train.steps = kServedSteps;
    run.log.dir = folder.path();
    return run;
  }

  // Names the ops of a step of the rank whose ops say when the victim is killed.
  std::vector<std::string> ops_before_which(const spec::RunFile& run, Rank victim) const {
    const spec::Layout layout = strategies::trainable_layout(run, GetParam().ranks());
    const program::Program step = strategies::compile_step(run, spec::program_table(run, layout.micro_batch), layout,
                                                           victim < GetParam().workers ? victim : 0);
    std::vector<std::string> ops;
    for (const program::Op& op : step.ops) {
      if (op.kind == program::OpKind::kRelease) continue;
      ops.push_back("step " + std::to_string(kFatalStep) + ": " + program::describe(step, op) + " on " +
                    program::rank_name(step));
    }
    return ops;
  }

  ServedEnd run_job(const spec::RunFile& run, const Kill& death = {}) const {
    SharedMemory shared = SharedMemory::create("herd:killed_servers", kPageBytes);
    shared.commit(0, kPageBytes);
    auto& times = *new (shared.data()) SharedTimes;
    const Rank witness = death.victim < GetParam().workers ? death.victim : 0;
    ForkWorld world(GetParam().ranks(), [&](Communicator& comm) {
      at::set_num_threads(1);
      times.pids[static_cast<size_t>(comm.rank())] = getpid();
      TrainHooks hooks{.print = [](const std::string&) {}};
      if (death.survives && comm.rank() == 0) {
        hooks.step_done = [&](const StepMetrics&) {
          if (times.struck_ns != 0 && times.known_ns == 0) times.known_ns = clock_ns();
        };
      }
      if (death.victim >= 0 && comm.rank() == witness) {
        hooks.op_begins = [&](const std::string& op) {
          if (op != death.op) return;
          times.struck_ns = clock_ns();
          ::kill(times.pids[static_cast<size_t>(death.victim)], SIGKILL);
        };
      }
      try {
        Trainer(run, comm, {.survives = death.survives}, hooks).run();
      } catch (...) {  // what was in flight has ended too
        const int64_t now = clock_ns();
        for (int64_t last = times.known_ns; last < now && !times.known_ns.compare_exchange_weak(last, now);) {
        }
        throw;
      }
    });
    ServedEnd end;
    end.ranks = world.wait();
    end.took = times.known_ns == 0 ? 1h : std::chrono::nanoseconds(times.known_ns - times.struck_ns);
    return end;
  }

  std::vector<StepMetrics> metrics_in(const TemporaryFolder& folder) const {
    return read_metrics(folder / "run" / "metrics.jsonl");
  }

  // All checkpoints are whole, and each has as many updates of each weight as ranks have pushed by then.
  int64_t expect_checkpoints_with_all_updates(const TemporaryFolder& folder) const {
    int64_t newest = 0;
    for (const FoundCheckpoint& one : list_checkpoints(folder / "run" / "checkpoints")) {
      CheckpointReader reader(one.folder);
      reader.verify();
      const int64_t updates = one.step * (GetParam().runs_ahead ? GetParam().workers : 1);
      EXPECT_EQ(reader.manifest().notes.at("server updates"), std::to_string(updates)) << one.folder;
      newest = std::max(newest, one.step);
    }
    return newest;
  }

  static bool was_killed(const RankEnd& end) { return WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL; }
};

TEST_P(KilledServers, AreNamedWithinASecond_AndTheJobGoesOn_WhereverInAStepARankDies) {
  const ServedJob& job = GetParam();
  const bool full = std::getenv("HERD_FULL_TESTS") != nullptr;
  const TemporaryFolder undisturbed_folder;
  std::vector<StepMetrics> undisturbed;
  if (!job.runs_ahead) {  // else losses depend on the order of pushes
    for (const RankEnd& rank : run_job(run_in(undisturbed_folder)).ranks) ASSERT_EQ(rank.status, 0) << rank.error;
    undisturbed = metrics_in(undisturbed_folder);
  }
  int number = 0;
  for (Rank victim = job.ranks() - 1; victim >= 0; --victim) {
    for (const std::string& op : ops_before_which(run_in(undisturbed_folder), victim)) {
      if (number++ != job.slice && !full) continue;
      SCOPED_TRACE("rank " + std::to_string(victim) + " dies before " + op);
      expect_within(1s, [&] {
        const TemporaryFolder folder;
        const spec::RunFile run = run_in(folder);
        const ServedEnd killed = run_job(run, {.victim = victim, .op = op});
        for (Rank rank = 0; rank < job.ranks(); ++rank) {
          const RankEnd& end = killed.ranks[static_cast<size_t>(rank)];
          EXPECT_EQ(was_killed(end), rank == victim) << "rank " << rank << ": " << end.error;
          if (rank != victim) {
            EXPECT_THAT(end.error, HasSubstr("kPeerLost")) << "rank " << rank;
            EXPECT_THAT(end.error, HasSubstr("rank " + std::to_string(victim))) << "rank " << rank;
          }
        }
        const int64_t saved = expect_checkpoints_with_all_updates(folder);
        EXPECT_TRUE(saved == kFatalStep || saved == kFatalStep - 1) << saved;
        for (const RankEnd& rank : run_job(run).ranks) EXPECT_EQ(rank.status, 0) << rank.error;
        EXPECT_EQ(expect_checkpoints_with_all_updates(folder), kServedSteps);
        const auto steps = metrics_in(folder);
        EXPECT_EQ(steps.size(), static_cast<size_t>(kServedSteps));
        for (size_t i = 0; i < undisturbed.size() && i < steps.size(); ++i)
          EXPECT_EQ(steps[i].loss, undisturbed[i].loss) << "step " << i + 1;
        return killed.took;
      });
    }
  }
  EXPECT_GT(number, job.slice);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, KilledServers,
    testing::Values(ServedJob{"Colocated", 3, 0, {"strategy.sync=server", "strategy.servers=2"}, false, 30},
                    ServedJob{"Dedicated", 2, 1, {"strategy.sync=server"}, false, 9},
                    ServedJob{"DedicatedTwo", 2, 2, {"strategy.sync=server", "train.micro_batch=1"}, false, 70},
                    ServedJob{"Ahead", 3, 0, {"strategy.sync=server_async", "strategy.servers=1"}, true, 12},
                    ServedJob{
                        "AheadOfDedicated", 2, 1, {"strategy.sync=server_async", "strategy.staleness=1"}, true, 5}),
    [](const auto& job) { return job.param.name; });

class SurvivedKills : public KilledServers {};

// The last rank that trains does not serve.
TEST_P(SurvivedKills, KeepNobodyFromGoingOn_WhereverInAStepARankDies) {
  const ServedJob& job = GetParam();
  const bool full = std::getenv("HERD_FULL_TESTS") != nullptr;
  const TemporaryFolder any;
  const Rank victim = job.workers - 1;
  const auto ops = ops_before_which(run_in(any), victim);
  ASSERT_GT(ops.size(), static_cast<size_t>(job.slice));
  for (size_t which = 0; which < ops.size(); ++which) {
    if (which != static_cast<size_t>(job.slice) && !full) continue;
    SCOPED_TRACE("rank " + std::to_string(victim) + " dies before " + ops[which]);
    expect_within(1s, [&] {
      const TemporaryFolder folder;
      const ServedEnd end = run_job(run_in(folder), {.victim = victim, .op = ops[which], .survives = true});
      for (Rank rank = 0; rank < job.ranks(); ++rank) {
        const RankEnd& one = end.ranks[static_cast<size_t>(rank)];
        EXPECT_EQ(was_killed(one), rank == victim);
        EXPECT_EQ(one.error, "") << "rank " << rank;
      }
      const auto steps = metrics_in(folder);
      EXPECT_EQ(steps.size(), static_cast<size_t>(kServedSteps));
      EXPECT_EQ(steps.back().ranks, job.workers - 1);
      return end.took;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, SurvivedKills,
    testing::Values(ServedJob{"Ahead", 3, 0, {"strategy.sync=server_async", "strategy.servers=1"}, true, 14},
                    ServedJob{"AheadOfDedicated", 3, 1, {"strategy.sync=server_async"}, true, 5}),
    [](const auto& job) { return job.param.name; });

}  // namespace
}  // namespace herd::train
