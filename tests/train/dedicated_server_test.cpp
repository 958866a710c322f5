// Whole runs with ranks that only serve (strategy.dedicated_servers): they train as those without, and go on from their
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

struct DedicatedServers : testing::Test {
  // A run without servers, which `keys` may ask for.
  spec::RunFile run_file(const std::string& name, const std::vector<std::string>& keys = {}) const {
    spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 40\ndropout = 0.1\n[data]\nkind = "
        "\"random\"\n"
        "[train]\nbatch = 12\nmicro_batch = 2\nsteps = 6\neval_every = 0\n[optimizer]\nlr = 1e-3\nclip = 0\n"
        "[checkpoint]\nevery = -1\n[log]\ntrace_steps = 0\n",
        "test", keys);
    run.log.name = name;
    run.log.dir = folder.path();
    return run;
  }
  std::vector<StepMetrics> metrics_of(const std::string& name) const {
    return read_metrics(folder / name / "metrics.jsonl");
  }
  // Trains as so many ranks, of which the last may only serve; `hosts` names that of each, else they share one. Returns
  // the steps that each rank says were done.
  static std::vector<int64_t> train_all(const spec::RunFile& run, int ranks, const std::vector<int>& hosts = {}) {
    std::vector<int64_t> done(static_cast<size_t>(ranks));
    const auto body = [&](Communicator& comm) {
      const TrainHooks hooks{.print = [](const std::string&) {}};
      done[static_cast<size_t>(comm.rank())] = Trainer(run, comm, {}, hooks).run().steps_done;
    };
    run_inproc(ranks, body, hosts);
    return done;
  }
  std::vector<StepMetrics> train(const spec::RunFile& run, int ranks, const std::vector<int>& hosts = {}) const {
    EXPECT_EQ(train_all(run, ranks, hosts), std::vector<int64_t>(static_cast<size_t>(ranks), run.train.steps));
    return metrics_of(run.log.name);
  }
  const TemporaryFolder folder;
};

double losses_apart(const std::vector<StepMetrics>& a, const std::vector<StepMetrics>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i].loss - b[i].loss) / b[i].loss);
  return worst;
}

bool runs_all() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

const std::string kServer = "strategy.sync=server";
std::string dedicated(int servers) { return "strategy.dedicated_servers=" + std::to_string(servers); }

// Servers add in the order of ranks, wherever they are. Of two terms there is one order.
TEST_F(DedicatedServers, TrainAsAllReduceAndAsColocatedOnes) {
  const bool full = runs_all();
  const std::string steps = full ? "train.steps=50" : "train.steps=6";
  for (int workers = 1; workers <= (full ? 4 : 3); workers += full ? 1 : 2) {
    const std::string name = std::to_string(workers);
    const auto reduced = train(run_file(name + "reduced", {steps}), workers);
    const auto colocated = train(run_file(name + "colocated", {steps, kServer}), workers);
    for (int servers = 1; servers <= 3; ++servers) {
      if (!full && servers != 2) continue;
      const auto apart = train(run_file(name + "and" + std::to_string(servers), {steps, kServer, dedicated(servers)}),
                               workers + servers);
      EXPECT_LE(losses_apart(apart, reduced), workers <= 2 ? 0 : 2e-6) << workers << " and " << servers;
      EXPECT_EQ(losses_apart(apart, colocated), 0) << workers << " and " << servers;
      EXPECT_EQ(apart.back().ranks, reduced.back().ranks);
    }
  }
}

TEST_F(DedicatedServers, ServeFromHostsOfTheirOwn) {
  const auto here = train(run_file("here", {kServer, dedicated(2)}), 4);
  EXPECT_EQ(losses_apart(train(run_file("there", {kServer, dedicated(2)}), 4, {0, 0, 1, 2}), here), 0);
}

TEST_F(DedicatedServers, TakeEncodedPushesAsColocatedOnes) {
  for (const std::string codec : {"topk", "bf16", "int8", "int4"}) {
    if (!runs_all() && codec != "topk") continue;
    const std::vector<std::string> keys = {kServer, "strategy.compression=" + codec, "strategy.compression_ratio=0.1",
                                           "train.steps=4"};
    auto more = keys;
    more.push_back(dedicated(2));
    EXPECT_EQ(losses_apart(train(run_file(codec + "2", more), 4), train(run_file(codec, keys), 2)), 0) << codec;
  }
  const auto plain = train(run_file("one", {kServer, dedicated(1)}), 2);
  const auto coded = train(run_file("onecoded", {kServer, dedicated(1), "strategy.compression=topk"}), 2);
  EXPECT_GT(losses_apart(coded, plain), 0) << "one rank that trains encodes, too";
}

TEST_F(DedicatedServers, TakeEveryOptimizerAndFrozenParameters) {
  int index = 0;
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"optimizer.kind=sgd", "optimizer.momentum=0.9", "model.frozen=h.1.*", "strategy.recompute=full"},
           {"optimizer.kind=sgd", "optimizer.momentum=0"},
           {"model.frozen=h.0.*"}}) {
    if (!runs_all() && index > 0) break;
    const std::string name = std::to_string(index++);
    auto keys = more;
    const auto reduced = train(run_file("reduced" + name, keys), 2);
    keys.insert(keys.end(), {kServer, dedicated(1)});
    EXPECT_EQ(losses_apart(train(run_file("served" + name, keys), 3), reduced), 0) << more[0];
  }
}

TEST_F(DedicatedServers, FreezeTheSecondMomentAsAllReduceDoes) {
  const std::string frozen = "optimizer.freeze_step=3";
  const auto reduced = train(run_file("reduced", {frozen}), 2);
  for (int servers = 1; servers <= 2; ++servers) {
    const auto apart =
        train(run_file("served by " + std::to_string(servers), {frozen, kServer, dedicated(servers)}), 2 + servers);
    EXPECT_EQ(losses_apart(apart, reduced), 0) << servers;
  }
  EXPECT_GT(losses_apart(train(run_file("never", {}), 2), reduced), 0);
}

// Runs go on from each other's checkpoints, at other numbers of servers and without any.
TEST_F(DedicatedServers, GoOnFromCheckpointsOfEveryKindOfSync) {
  struct Start {
    int workers;
    std::vector<std::string> keys;
  };
  const Start reduced{3, {}}, colocated{3, {kServer, "strategy.servers=2"}},
      one{3, {kServer, dedicated(1), "strategy.schedule=priority", "strategy.partition_bytes=300"}},
      two{3, {kServer, dedicated(2)}};
  const std::vector<std::string> saves = {"train.steps=8", "checkpoint.every=4", "checkpoint.keep=5"};
  const auto keys_of = [&](const Start& start) {
    auto keys = saves;
    keys.insert(keys.end(), start.keys.begin(), start.keys.end());
    return keys;
  };
  const auto ranks_of = [](const spec::RunFile& run, int workers) {
    return workers + static_cast<int>(run.strategy.dedicated_servers);
  };
  int index = 0;
  std::vector<std::pair<Start, Start>> moves = {{one, colocated}, {reduced, two}};
  if (runs_all()) {
    for (const auto& move : {std::pair{colocated, one}, {one, two}, {two, one}, {one, one}, {two, reduced}})
      moves.push_back(move);
  }
  for (const auto& [first, second] : moves) {
    const std::string name = "move" + std::to_string(index++);
    spec::RunFile run = run_file(name, keys_of(first));
    const auto whole = train(run, ranks_of(run, first.workers));
    const auto at_4 = folder / name / "checkpoints" / checkpoint_folder_name(4);
    const auto at_8 = folder / name / "checkpoints" / checkpoint_folder_name(8);
    {
      CheckpointReader reader(at_4);
      reader.verify();
      EXPECT_EQ(reader.manifest().notes.at("ranks"), "3");
      if (first.keys.empty()) {
        EXPECT_FALSE(reader.manifest().notes.contains("server updates"));
      } else {
        EXPECT_EQ(reader.manifest().notes.at("server updates"), "4");
        for (const auto& [file, bytes] : reader.manifest().files)
          EXPECT_EQ(SafetensorsFile(at_4 / file).metadata().at("server updates"), "4") << file;
      }
    }
    const auto saved = CheckpointReader(at_8).manifest().tensors.size();
    std::filesystem::remove_all(at_8);
    run = run_file(name, keys_of(second));
    const auto resumed = train(run, ranks_of(run, second.workers));
    const bool sums_alike = first.keys.empty() == second.keys.empty();
    EXPECT_LE(losses_apart(resumed, whole), sums_alike ? 0 : 2e-6) << name;
    const CheckpointReader reader(at_8);
    EXPECT_EQ(reader.manifest().tensors.size(), saved) << name;
    for (const auto& [file, bytes] : reader.manifest().files) {
      if (second.keys.empty()) continue;
      EXPECT_EQ(SafetensorsFile(at_8 / file).metadata().at("server updates"), "8") << name << " " << file;
    }
    EXPECT_EQ(train_all(run, ranks_of(run, second.workers)),
              std::vector<int64_t>(static_cast<size_t>(ranks_of(run, second.workers)), 8))
        << "a finished run says so on all ranks";
  }
}

// Rank 0 and the servers save, where ranks do not wait for each other.
TEST_F(DedicatedServers, LetRanksRunAhead_AndGoOn) {
  for (const std::string staleness : {"2", "-1"}) {
    for (const int servers : {1, 2}) {
      if (!runs_all() && (staleness != "2" || servers != 1)) continue;
      const std::string name = "ahead" + staleness + "and" + std::to_string(servers);
      const auto keys = [&](int count) {
        return std::vector<std::string>{"strategy.sync=server_async",
                                        "strategy.staleness=" + staleness,
                                        "train.steps=12",
                                        "train.eval_every=3",
                                        "checkpoint.every=6",
                                        "checkpoint.keep=5",
                                        "health.replica_hash_every=2",
                                        dedicated(count)};
      };
      const spec::RunFile run = run_file(name, keys(servers));
      train(run, 3 + servers);
      const auto checkpoint = [&](int64_t step) {
        return folder / name / "checkpoints" / checkpoint_folder_name(step);
      };
      const auto expect_states = [&](int64_t step, int count) {
        CheckpointReader reader(checkpoint(step));
        reader.verify();
        EXPECT_EQ(reader.manifest().notes.at("server updates"), std::to_string(3 * step));
        EXPECT_EQ(reader.manifest().files.size(), 1u + static_cast<size_t>(count)) << "rank 0 and the servers save";
      };
      expect_states(6, servers);
      expect_states(12, servers);
      std::filesystem::remove_all(checkpoint(12));
      const auto before = metrics_of(name);
      train(run_file(name, keys(3 - servers)), 3 + 3 - servers);
      expect_states(12, 3 - servers);
      EXPECT_EQ(metrics_of(name)[5].loss, before[5].loss) << "it went on after step 6";
      EXPECT_TRUE(metrics_of(name)[8].val_loss && std::isfinite(*metrics_of(name)[8].val_loss));
      int64_t most = 0;
      for (const StepMetrics& step : metrics_of(name)) most = std::max(most, step.staleness.value());
      EXPECT_LE(most, staleness == "2" ? 2 : 12);
    }
  }
  if (!runs_all()) return;
  const auto sync = train(run_file("sync", {kServer, dedicated(2)}), 5);
  EXPECT_EQ(losses_apart(
                train(run_file("zero", {"strategy.sync=server_async", "strategy.staleness=0", dedicated(2)}), 5), sync),
            0);
}

// One rank that trains is its own order of updates: what it goes on with has the bits of a run that was not stopped.
TEST_F(DedicatedServers, GoOnWithTheBitsOfOneRankThatRunsAhead) {
  for (const std::string codec : {"topk", "int8"}) {
    if (!runs_all() && codec != "topk") continue;
    const spec::RunFile run =
        run_file("alone" + codec, {"strategy.sync=server_async", dedicated(1), "strategy.compression=" + codec,
                                   "train.steps=8", "checkpoint.every=4", "checkpoint.keep=5"});
    const auto whole = train(run, 2);
    std::filesystem::remove_all(folder / run.log.name / "checkpoints" / checkpoint_folder_name(8));
    const auto resumed = train(run, 2);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(resumed[i].loss, whole[i].loss) << codec << " step " << i + 1;
  }
}

// All ranks end with the reason of the one that fails, servers too.
TEST_F(DedicatedServers, EndWithARankThatFails) {
  for (const int victim : {1, 0}) {
    if (!runs_all() && victim == 0) break;
    const auto run = run_file("fails" + std::to_string(victim), {kServer, dedicated(2), "train.steps=50"});
    std::atomic<int> ended = 0;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(run_inproc(4,
                            [&](Communicator& comm) {
                              TrainHooks hooks{.print = [](const std::string&) {}};
                              hooks.step_done = [&](const StepMetrics& metrics) {
                                if (comm.rank() == victim && metrics.step == 3)
                                  throw std::runtime_error("it fell over");
                              };
                              try {
                                Trainer(run, comm, {}, hooks).run();
                              } catch (const std::exception& error) {
                                EXPECT_THAT(error.what(), testing::HasSubstr("it fell over")) << comm.rank();
                                ++ended;
                                throw;
                              }
                            }),
                 std::runtime_error);
    EXPECT_EQ(ended, 4);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

// Of what the last rank saves no rank that trains reads anything.
TEST_F(DedicatedServers, EndWithAServerThatFails) {
  const auto run = run_file("broken", {kServer, dedicated(1), "checkpoint.every=3"});
  train(run, 3);
  const auto checkpoints = folder / "broken" / "checkpoints";
  std::filesystem::remove_all(checkpoints / checkpoint_folder_name(6));
  std::filesystem::path states;  // of rank 2
  const CheckpointReader reader(checkpoints / checkpoint_folder_name(3));
  for (const auto& [file, bytes] : reader.manifest().files)
    states = std::max(states, checkpoints / checkpoint_folder_name(3) / file);
  std::fstream(states, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-4, std::ios::end)
      .write("\xff\xff\xff\xff", 4);
  std::atomic<int> ended = 0;
  EXPECT_THROW(run_inproc(3,
                          [&](Communicator& comm) {
                            try {
                              Trainer(run, comm).run();
                            } catch (const Error& error) {
                              EXPECT_THAT(error.what(), testing::HasSubstr(states.filename().string())) << comm.rank();
                              ++ended;
                              throw;
                            }
                          }),
               Error);
  EXPECT_EQ(ended, 3);
}

// An error that all ranks have is rank 0's to say; the servers end with its code.
TEST_F(DedicatedServers, EndInSilence_WhereAllRanksHaveTheError) {
  train(run_file("done", {kServer, dedicated(1), "checkpoint.every=3"}), 3);
  const spec::RunFile other =
      run_file("done", {kServer, dedicated(1), "checkpoint.every=3", "model.layers=3", "train.steps=9"});
  std::atomic<int> ended = 0;
  EXPECT_THROW(run_inproc(3,
                          [&](Communicator& comm) {
                            try {
                              Trainer trainer(other, comm);
                            } catch (const Error& error) {
                              EXPECT_EQ(error.code(), Code::kBadConfig) << comm.rank() << error.what();
                              EXPECT_THAT(error.what(), testing::HasSubstr("model.layers")) << comm.rank();
                              ++ended;
                              throw;
                            }
                          }),
               Error);
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace herd::train
