// Whole runs whose ranks run ahead of each other (strategy.sync = "server_async"): as far as they may and no farther,
// with the same weights wherever all meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "herd/storage/safetensors.h"
#include "herd/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

constexpr int kRanks = 3, kSlow = 2;

struct ServerAsync : testing::Test {
  spec::RunFile run_file(const std::string& name, int64_t staleness, const std::vector<std::string>& keys = {}) const {
    spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 1\nwidth = 8\nheads = 2\ncontext = 4\nvocab = 17\n[data]\nkind = \"random\"\n[train]\n"
        "batch = 6\nmicro_batch = 2\nsteps = 24\neval_every = 0\n[optimizer]\nlr = 1e-3\nclip = 0\n[checkpoint]\n"
        "every = -1\n[strategy]\nsync = \"server_async\"\nservers = 2\n[log]\ntrace_steps = 0\n",
        "test", keys);
    run.strategy.staleness = staleness;
    run.log.name = name;
    run.log.dir = folder.path();
    return run;
  }
  // Returns how many steps each rank has done. `step_done(rank, steps)` runs on each rank after each step.
  static std::vector<int64_t> train(const spec::RunFile& run, const std::function<void(int, int64_t)>& step_done = {}) {
    std::vector<int64_t> done(kRanks);
    run_inproc(kRanks, [&](Communicator& comm) {
      TrainHooks hooks;
      if (step_done) hooks.step_done = [&](const StepMetrics& metrics) { step_done(comm.rank(), metrics.step); };
      done[static_cast<size_t>(comm.rank())] = Trainer(run, comm, {}, hooks).run().steps_done;
    });
    return done;
  }
  std::vector<StepMetrics> metrics_of(const spec::RunFile& run) const {
    return read_metrics(folder / run.log.name / "metrics.jsonl");
  }
  const TemporaryFolder folder;
};

std::vector<float> numbers_of(const std::filesystem::path& checkpoint, const std::string& tensor) {
  CheckpointReader reader(checkpoint);
  const auto& shape = reader.manifest().tensors.at(tensor).shape;
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> out(static_cast<size_t>(count));
  reader.read(tensor, whole_slice(shape), std::as_writable_bytes(std::span(out)));
  return out;
}

int64_t most_stale(const std::vector<StepMetrics>& steps) {
  int64_t most = 0;
  for (const StepMetrics& step : steps) most = std::max(most, step.staleness.value());
  return most;
}

// The slow rank waits after each step until the others are as far ahead as they may be.
TEST_F(ServerAsync, RunsAheadAsFarAsStated_AndNoFarther) {
  for (const int64_t staleness : {1, 2, 5, -1}) {
    const spec::RunFile run = run_file("ahead" + std::to_string(staleness), staleness);
    std::array<std::atomic<int64_t>, kRanks> steps{};
    train(run, [&](int rank, int64_t done) {
      steps[static_cast<size_t>(rank)] = done;
      if (rank != kSlow) return;
      const int64_t ahead = staleness < 0 ? run.train.steps : done + staleness;
      const int64_t wanted = std::min(ahead, run.train.steps - 1);  // after the last step all meet
      while (steps[0] < wanted || steps[1] < wanted) std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
    const auto metrics = metrics_of(run);
    ASSERT_EQ(metrics.size(), static_cast<size_t>(run.train.steps));
    const int64_t most = most_stale(metrics);
    if (staleness < 0)
      EXPECT_GE(most, run.train.steps - 3) << "there is no bound";
    else
      EXPECT_EQ(most, staleness);
    int64_t tokens = 0;
    for (const StepMetrics& step : metrics) {
      tokens += step.tokens;
      EXPECT_TRUE(std::isfinite(step.loss));
    }
    EXPECT_EQ(tokens, run.train.steps * run.train.batch * run.model.context) << "each counts in one step";
  }
}

// One rank is ten times slower than the others, as it sleeps.
TEST_F(ServerAsync, StaysWithinTheBound_WhereOneRankIsTenTimesSlower) {
  const bool full = std::getenv("HERD_FULL_TESTS") != nullptr;
  for (const int64_t staleness : {1, 2, 4, 8}) {
    if (!full && staleness != 2) continue;
    spec::RunFile run = run_file("paced" + std::to_string(staleness), staleness);
    run.train.steps = full ? 500 : 40;
    train(run, [&](int rank, int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(rank == kSlow ? 10'000 : 1'000));
    });
    EXPECT_LE(most_stale(metrics_of(run)), staleness);
    EXPECT_GE(most_stale(metrics_of(run)), 1);
  }
}

// Replicas are compared, validated and saved where all ranks meet: a replica that differs ends the run.
TEST_F(ServerAsync, HasTheSameWeightsOnAllRanks_WhereTheyMeet_AndGoesOnFromACheckpoint) {
  for (const int64_t staleness : {2, -1}) {
    SCOPED_TRACE(staleness);
    spec::RunFile run = run_file("meets" + std::to_string(staleness), staleness,
                                 {"train.steps=12", "train.eval_every=3", "checkpoint.every=6", "checkpoint.keep=5",
                                  "health.replica_hash_every=2"});
    if (staleness < 0) run.strategy.schedule = "priority", run.strategy.partition_bytes = 400;
    EXPECT_EQ(train(run), std::vector<int64_t>(kRanks, 12));
    const auto first = metrics_of(run);
    EXPECT_TRUE(first[2].val_loss && std::isfinite(*first[2].val_loss));
    const auto checkpoint = [&](int64_t step) {
      return folder / run.log.name / "checkpoints" / checkpoint_folder_name(step);
    };
    const auto expect_states = [&](int64_t step, int64_t updates) {
      const CheckpointReader reader(checkpoint(step));
      EXPECT_EQ(reader.manifest().notes.at("server updates"), std::to_string(updates));
      EXPECT_EQ(reader.manifest().files.size(), 2u) << "those that serve save";
      for (const auto& [file, bytes] : reader.manifest().files) {
        const auto notes = SafetensorsFile(checkpoint(step) / file).metadata();
        EXPECT_EQ(notes.at("step"), std::to_string(step)) << file;
        EXPECT_EQ(notes.at("server updates"), std::to_string(updates)) << file;
      }
    };
    expect_states(6, kRanks * 6);
    expect_states(12, kRanks * 12);
    std::filesystem::remove_all(checkpoint(12));
    EXPECT_EQ(train(run), std::vector<int64_t>(kRanks, 12));
    expect_states(12, kRanks * 12);
    EXPECT_EQ(metrics_of(run).size(), 12u);
    EXPECT_EQ(metrics_of(run)[5].loss, first[5].loss) << "it went on after step 6";
  }
}

// The first update of AdamW moves a weight by the learning rate, whatever its gradient. Three in a step, each of a
// third of the rate, move none by much more.
TEST_F(ServerAsync, MovesWeightsAsFarInAStep_AsOneUpdateOfAllRanks) {
  const auto weights_after_a_step = [&](const std::string& name, const std::string& rate) {
    spec::RunFile run = run_file(name, -1,
                                 {"train.steps=1", "checkpoint.every=0", "optimizer.weight_decay=0",
                                  "optimizer.schedule=constant", "optimizer.warmup_steps=0", "optimizer.lr=" + rate});
    train(run);
    return numbers_of(resolve_checkpoint(folder / name), "wte.weight");
  };
  const auto before = weights_after_a_step("rate0", "1e-12"), after = weights_after_a_step("rate", "1e-3");
  float most = 0;
  for (size_t i = 0; i < before.size(); ++i) most = std::max(most, std::abs(after[i] - before[i]));
  EXPECT_GT(most, 0.7e-3f);
  EXPECT_LT(most, 1.5e-3f);
}

// The last rank only works. Its samples are left out from then on.
TEST_F(ServerAsync, GoesOnWithoutARankThatFails_WhereItMay) {
  struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  for (const int64_t staleness : {2, -1}) {
    spec::RunFile run = run_file("survives" + std::to_string(staleness), staleness,
                                 {"train.steps=16", "train.eval_every=4", "checkpoint.every=4",
                                  "health.replica_hash_every=2", "log.trace_steps=3"});
    run_inproc(kRanks, [&](Communicator& comm) {
      const auto step_done = [&](const StepMetrics& metrics) {
        if (comm.rank() == kSlow && metrics.step == 6) throw Failure("a bug of the user");
      };
      try {
        EXPECT_EQ(Trainer(run, comm, {.survives = true}, {.step_done = step_done}).run().steps_done, 16);
        EXPECT_NE(comm.rank(), kSlow);
      } catch (const Failure&) {
        EXPECT_EQ(comm.rank(), kSlow);
      }
    });
    const auto metrics = metrics_of(run);
    ASSERT_EQ(metrics.size(), 16u);
    EXPECT_EQ(metrics.front().ranks, kRanks);
    EXPECT_EQ(metrics.back().ranks, kRanks - 1);
    EXPECT_TRUE(metrics.back().val_loss && std::isfinite(*metrics.back().val_loss));
    int64_t tokens = 0;
    for (const StepMetrics& step : metrics) tokens += step.tokens;
    const int64_t of_rank = run.train.batch / kRanks * run.model.context;
    EXPECT_EQ(tokens, (16 * kRanks - 10) * of_rank) << "it has done 6 steps of 16";
    CheckpointReader reader(resolve_checkpoint(folder / run.log.name));
    reader.verify();
    EXPECT_EQ(reader.manifest().step, 16);
    EXPECT_EQ(reader.manifest().notes.at("server updates"), std::to_string(16 * kRanks - 10));
  }
}

// What encoding has lost on rank 2, which only works, is in the checkpoint. All ranks meet after each step, so that a
// run that goes on has the same weights up to the order in which servers have made the updates of a step.
TEST_F(ServerAsync, GoesOnWithWhatEncodingHasLostOnEachRank) {
  const spec::RunFile run = run_file(
      "encoded", -1,
      {"train.steps=12", "checkpoint.every=6", "checkpoint.keep=5", "health.replica_hash_every=1",
       "strategy.compression=topk", "strategy.compression_ratio=0.05", "optimizer.kind=sgd", "optimizer.momentum=0",
       "optimizer.weight_decay=0", "optimizer.lr=1", "optimizer.schedule=constant", "optimizer.warmup_steps=0"});
  train(run);
  const auto checkpoint = [&](int64_t step) {
    return folder / run.log.name / "checkpoints" / checkpoint_folder_name(step);
  };
  const CheckpointReader before(checkpoint(6));
  for (int rank = 0; rank < kRanks; ++rank) {
    float most = 0;
    for (const auto& [name, tensor] : before.manifest().tensors) {
      if (!name.starts_with("gradient_residual." + std::to_string(rank) + ".")) continue;
      for (const float lost : numbers_of(checkpoint(6), name)) most = std::max(most, std::abs(lost));
    }
    EXPECT_GT(most, 0) << "rank " << rank;
  }
  const auto whole = numbers_of(checkpoint(12), "wte.weight");
  std::filesystem::remove_all(checkpoint(12));
  train(run);
  const auto resumed = numbers_of(checkpoint(12), "wte.weight");
  float most = 0;
  for (size_t i = 0; i < whole.size(); ++i) most = std::max(most, std::abs(resumed[i] - whole[i]));
  EXPECT_LT(most, 1e-5f);
}

TEST_F(ServerAsync, StopsAllRanksAfterTheSameStep_AndSaves) {
  spec::RunFile run = run_file("stopped", -1, {"checkpoint.every=0", "train.max_minutes=1e-4"});
  run.train.steps = 3000;
  const auto done = train(run);
  EXPECT_LT(done[0], run.train.steps);
  EXPECT_EQ(done, std::vector<int64_t>(kRanks, done[0]));
  EXPECT_TRUE(std::filesystem::exists(folder / run.log.name / "checkpoints" / checkpoint_folder_name(done[0])));
}

}  // namespace
}  // namespace herd::train
