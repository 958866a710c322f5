// Whole runs on the device "later" (tests/device): what calibrates, validates, saves, goes on from a checkpoint of
// another device, and finds a NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "herd/comm/inproc_world.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/metrics.h"
#include "herd/train/trainer.h"
#include "tests/device/later_device.h"
#include "tests/support/sample.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

struct DeviceRun : testing::Test {
  DeviceRun() { later::install(/*seed=*/11); }
  spec::RunFile run_file(const std::string& name, const std::vector<std::string>& keys) const {
    spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 7\nvocab = 41\ndropout = 0.1\n[data]\nkind = "
        "\"random\"\n[train]\nbatch = 6\nmicro_batch = 2\nsteps = 4\neval_every = 2\n[optimizer]\nlr = 1e-3\n"
        "[checkpoint]\nevery = 2\n[health]\nreplica_hash_every = 2\n",
        "test", keys);
    run.log.name = name;
    run.log.dir = folder.path();
    return run;
  }
  std::vector<StepMetrics> train(spec::RunFile run, const std::string& device, int ranks) const {
    run.device.kind = device;
    run_inproc(ranks, [&](Communicator& comm) { Trainer(run, comm).run(); });
    return read_metrics(folder / run.log.name / "metrics.jsonl");
  }
  const TemporaryFolder folder;
};

void expect_same(const std::vector<StepMetrics>& steps, const std::vector<StepMetrics>& expected, double share) {
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].loss, expected[i].loss, share * expected[i].loss) << "step " << i;
    if (!std::isnan(expected[i].grad_norm)) {  // parameter servers have none
      EXPECT_NEAR(steps[i].grad_norm, expected[i].grad_norm, 10 * share * expected[i].grad_norm) << "step " << i;
    }
    EXPECT_EQ(steps[i].tokens, expected[i].tokens);
  }
  EXPECT_NEAR(*steps.back().val_loss, *expected.back().val_loss, share * *expected.back().val_loss);
}

TEST_F(DeviceRun, GoesOnFromACheckpointOfAnotherDevice) {
  const std::vector<std::string> llama_bf16 = {"model.kind=llama", "model.norm=rmsnorm", "model.dropout=0",
                                               "strategy.precision=bf16"};
  std::vector<std::tuple<const char*, int, std::vector<std::string>>> runs = {
      {"llama", 1, llama_bf16},
      {"shards", 2, {"strategy.zero=3", "strategy.offload=states"}},
      {"encoded", 2, {"strategy.compression=int8"}},
      {"served", 2, {"strategy.sync=server", "strategy.compression=topk", "optimizer.clip=0"}}};
  if (one_in(2, 2) == 1) {
    runs.push_back({"gpt", 1, {}});
    runs.push_back({"read on the host", 1, {"strategy.offload=window", "strategy.direct_host=embedding head"}});
  }
  for (const auto& [name, ranks, keys] : runs) {
    SCOPED_TRACE(name);
    const double share = std::string(name) == "llama" ? 2e-3 : 1e-6;
    const auto expected = train(run_file(std::string(name) + " of the CPU", keys), "cpu", ranks);
    for (const auto& [first, second] : {std::pair("extension", "cpu"), std::pair("cpu", "extension")}) {
      SCOPED_TRACE(first);
      const spec::RunFile run = run_file(std::string(name) + " from " + first, keys);
      expect_same(train(run, first, ranks), expected, share);
      std::filesystem::remove_all(folder / run.log.name / "checkpoints" / checkpoint_folder_name(run.train.steps));
      expect_same(train(run, second, ranks), expected, share);
    }
  }
}

// Where ranks meet, all have pulled the same weights: the run compares them.
TEST_F(DeviceRun, ComparesReplicasOfRanksThatRunAhead) {
  const auto steps = train(
      run_file("ahead", {"strategy.sync=server_async", "strategy.staleness=2", "optimizer.clip=0"}), "extension", 3);
  ASSERT_EQ(steps.size(), 4);
  EXPECT_LT(*steps.back().val_loss, 1.05 * steps.front().loss);
}

// The norm is read at the end of a step: nothing was updated by then.
TEST_F(DeviceRun, NamesTheBlockThatMakesANaN) {
  spec::RunFile run = run_file("nan", {"optimizer.lr=1e15", "optimizer.warmup_steps=0", "train.eval_every=0"});
  run.device.kind = "extension";
  std::string text;
  run_inproc(1, [&](Communicator& comm) {
    try {
      Trainer(run, comm).run();
    } catch (const Error& error) {
      text = error.message();
    }
  });
  EXPECT_THAT(text, testing::HasSubstr("first seen by rank 0"));
  EXPECT_THAT(text, testing::HasSubstr("the norm of the gradient is nan"));
}

}  // namespace
}  // namespace herd::train
