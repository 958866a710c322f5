// Programs that train a chain of own blocks, run as a user runs them: herd run -n N -- PROGRAM FILE.toml [key=value].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <cmath>
#include <map>
#include <random>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "tests/support/python_with_torch.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

// Runs an example that has a run file of its own, with its runs in a folder that goes with the object.
class OwnModel {
 public:
  explicit OwnModel(std::string name) : name_(std::move(name)) {}

  Ended train(const std::string& run, int ranks, const std::vector<std::string>& overrides = {}) const {
    return train_by({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "run", "-n", std::to_string(ranks), "--"}, run,
                    overrides);
  }

  // Starts the ranks by the words of a launcher.
  Ended train_by(std::vector<std::string> words, const std::string& run,
                 const std::vector<std::string>& overrides) const {
    const fs::path binary = std::getenv("HERD_BINARY_DIR"), source = std::getenv("HERD_SOURCE_DIR");
    words.insert(words.end(), {binary / "examples" / name_, source / "examples" / (name_ + ".toml"),
                               "log.dir=" + folder_.root.string(), "log.name=" + run});
    words.insert(words.end(), overrides.begin(), overrides.end());
    Command command(words, folder_.root / (run + ".output"));
    const int status = command.wait();
    return {status, command.output()};
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> out;
    for (const StepMetrics& step : read_metrics(folder_.root / run / "metrics.jsonl")) out.push_back(step.loss);
    return out;
  }
  std::vector<StepMetrics> metrics(const std::string& run) const {
    return read_metrics(folder_.root / run / "metrics.jsonl");
  }
  const fs::path& root() const { return folder_.root; }

 private:
  std::string name_;
  RunFolder folder_;
};

// Returns the largest difference beside a loss, or beside this part of the first loss where it is less: a loss near
// zero is a difference of logits, whose rounding does not shrink with it.
double most_apart(const std::vector<double>& a, const std::vector<double>& b, double part_of_first = 0) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(b[i], part_of_first * b[0]));
  return worst;
}

TEST(OwnModelCommand, TrainsInEveryLayoutAsOnOneRank_AndResumesInAnother) {
  const OwnModel own("own_model");
  const Ended one = own.train("one", 1, {"train.steps=16"});
  ASSERT_EQ(one.status, 0) << one.output;
  const std::vector<double> expected = own.losses("one");
  const std::vector<std::pair<int, std::vector<std::string>>> layouts = {
      {2, {"strategy.zero=3"}}, {2, {"mesh.pp=2"}}, {4, {"mesh.pp=2", "strategy.recompute=full", "strategy.zero=1"}}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string name = "layout" + std::to_string(i);
    std::vector<std::string> first = layouts[i].second, second = layouts[(i + 1) % layouts.size()].second;
    first.insert(first.end(), {"train.steps=8", "train.batch=30"});  // the ranks share 30 unevenly
    second.insert(second.end(), {"train.steps=16", "train.batch=30"});
    const Ended begun = own.train(name, layouts[i].first, first);
    ASSERT_EQ(begun.status, 0) << begun.output;
    const Ended resumed = own.train(name, layouts[(i + 1) % layouts.size()].first, second);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
    if (i == 0) {
      ASSERT_EQ(own.train("thirty", 1, {"train.steps=16", "train.batch=30"}).status, 0);
    }
    EXPECT_LT(most_apart(own.losses(name), own.losses("thirty")), 2e-6) << name;
  }
  EXPECT_NE(expected, own.losses("thirty"));
}

// Adam moves the biases of keys, whose true gradient is zero, by rounding alone, and torch's attention has them in one
// tensor with the others.
TEST(OwnModelCommand, IsComparedInTwoLayoutsByHerdParity) {
  const fs::path binary = std::getenv("HERD_BINARY_DIR"), source = std::getenv("HERD_SOURCE_DIR");
  const RunFolder folder;
  const auto parity = [&](const std::string& b) {
    Command command({binary / "herd", "parity", source / "examples" / "own_model.toml", "--program",
                     binary / "examples" / "own_model", "--a", "mesh.dp=1", "--b", b, "--weight-tolerance", "0.02",
                     "train.steps=3"},
                    folder.root / "output");
    const int status = command.wait();
    return Ended{status, command.output()};
  };
  const Ended same = parity("mesh.pp=2 mesh.dp=2 strategy.zero=3");
  EXPECT_EQ(same.status, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("losses of 3 steps"));
  const Ended other = parity("mesh.dp=2 optimizer.lr=0.1");
  EXPECT_EQ(other.status, 1) << other.output;
  EXPECT_THAT(other.output, HasSubstr("EXCEEDS"));
}

struct DrawnLayout {
  int ranks;
  std::vector<std::string> keys;
};

// Returns one layout of at most eight ranks.
DrawnLayout draw_layout(std::mt19937& random, const std::string& precision, const std::string& half, int batch) {
  const auto one_of = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  const int pp = std::stoi(one_of({"1", "1", "2", "4"})), dp = static_cast<int>(1 + random() % 2);
  const std::string zero = one_of({"0", "1", "2", "3"});
  DrawnLayout out{
      pp * dp,
      {"mesh.pp=" + std::to_string(pp), "strategy.zero=" + zero, "train.batch=" + std::to_string(batch),
       "strategy.recompute=" + one_of({"none", "full", "sqrt", "every:2"}),
       "strategy.offload=" + one_of({"none", "states", "window", "nvme"}),
       "train.micro_batch=" + one_of({"2", "3", "5"}), "strategy.precision=" + precision, "checkpoint.every=" + half}};
  if (out.keys[3] != "strategy.recompute=none")
    out.keys.push_back("strategy.offload_activations=" + one_of({"none", "host", "nvme"}));
  std::vector<std::string> orders = {"1f1b", "gpipe", "zero_bubble_h1"};
  if (pp == 2) orders.insert(orders.end(), {"interleaved", "zero_bubble_v"});  // two stages a rank: chains of 4 blocks
  if (pp > 1) out.keys.push_back("strategy.pipeline=" + one_of(orders));
  return out;
}

// Each run begins in one layout and goes on in another, with batches that its ranks share unevenly.
TEST(OwnModelCommand, LosesAsOneRankInRandomLayouts) {
  constexpr int kLayouts = 60, kSteps = 6;
  for (int seed = 0; seed < kLayouts; seed += one_in(29, 31)) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto in = static_cast<size_t>(seed);
    const std::string program = std::vector<std::string>{"own_model", "two_towers", "bert_lecture"}[in % 3];
    const std::string drawn = std::vector<std::string>{"bf16", "fp32", "fp16", "fp32", "fp32", "fp32"}[in / 7 % 6];
    const std::string precision = program == "bert_lecture" ? "fp32" : drawn;  // torch's attention masks no 16 bits
    const OwnModel own(program);
    const int batch = static_cast<int>(program == "bert_lecture" ? 3 + random() % 3 : 7 + random() % 8);
    const std::string half = std::to_string(kSteps / 2), all = std::to_string(kSteps);
    std::string told = "seed " + std::to_string(seed) + " " + program;
    for (const std::string& steps : {half, all}) {
      DrawnLayout layout = draw_layout(random, precision, half, batch);
      for (const std::string& key : layout.keys) told += " " + key;
      layout.keys.push_back("train.steps=" + steps);
      const Ended ended = own.train("many", layout.ranks, layout.keys);
      ASSERT_EQ(ended.status, 0) << told << "\n" << ended.output;
    }
    ASSERT_EQ(own.train("one", 1,
                        {"train.steps=" + all, "train.batch=" + std::to_string(batch),
                         "train.micro_batch=" + std::to_string(batch), "strategy.precision=" + precision})
                  .status,
              0);
    const std::map<std::string, double> allowed = {{"fp32", 2e-6}, {"bf16", 4 * 0x1p-8}, {"fp16", 4 * 0x1p-11}};
    EXPECT_LT(most_apart(own.losses("many"), own.losses("one"), 0.1), allowed.at(precision)) << told;
  }
}

TEST(OwnModelCommand, TwoTowersLearn_AndReportWhatWasMeasured) {
  const OwnModel own("two_towers");
  const Ended ended = own.train("towers", 2, {"train.steps=60"});
  ASSERT_EQ(ended.status, 0) << ended.output;
  const std::vector<double> losses = own.losses("towers");
  EXPECT_LT(losses.back(), 0.9 * losses.front());
  EXPECT_THAT(ended.output, HasSubstr("predicted"));
  EXPECT_TRUE(fs::exists(own.root() / "towers" / "report.html"));
  const fs::path binary = std::getenv("HERD_BINARY_DIR");
  const auto plan = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {binary / "herd", "plan", own.root() / "towers" / "config.toml", "--ranks", "2"});
    Command command(words, own.root() / "plan.output");
    EXPECT_EQ(command.wait(), 0);
    return command.output();
  };
  const std::string stages = plan({"mesh.pp=2", "--stages"});
  EXPECT_THAT(stages, HasSubstr("chain of 4 blocks, 1.85 K parameters"));
  EXPECT_THAT(stages, testing::ContainsRegex("1 +1 +item to loss +937"));
  EXPECT_THAT(plan({"mesh.pp=2"}), testing::Not(HasSubstr("backward-weight is merged into backward")));
  EXPECT_THAT(plan({"mesh.pp=2", "strategy.pipeline=zero_bubble_h1"}),
              HasSubstr("backward-weight is merged into backward"));
  const fs::path cluster = own.root() / "towers" / "cluster.toml";
  EXPECT_THAT(plan({"--cluster", cluster}), testing::Not(HasSubstr("another chain")));
  std::string text = slurp(cluster);
  const size_t name = text.find("item ");
  ASSERT_NE(name, text.npos) << text;
  std::ofstream(cluster) << text.replace(name, 5, "file ");
  EXPECT_THAT(plan({"--cluster", cluster}), HasSubstr("those of another chain, and do not count"));
}

// Rank 0 alone prints a line for each epoch, whatever a step has of it.
TEST(OwnModelCommand, TheBertOfTheLectureLearnsItsLabel_AndPrintsEachEpochOnce) {
  const OwnModel own("bert_lecture");
  for (const int ranks : {1, 2, 4}) {
    const std::string run = "ranks" + std::to_string(ranks);
    std::vector<std::string> words = {
        "--epochs",         "3", "--batch", "4", "--samples", "6", "train.micro_batch=1", "checkpoint.every=-1",
        "optimizer.lr=1e-3"};
    if (ranks == 4) words.emplace_back("mesh.pp=2");
    const Ended ended = own.train(run, ranks, words);
    ASSERT_EQ(ended.status, 0) << ended.output;
    std::string epochs;
    for (size_t at = 0; (at = ended.output.find("epoch ", at)) != std::string::npos; ++at)
      epochs += ended.output.substr(at, 13);
    EXPECT_EQ(epochs, "epoch 1  lossepoch 2  lossepoch 3  loss") << ended.output;
    EXPECT_LT(most_apart(own.losses(run), own.losses("ranks1")), 1e-5);
    EXPECT_LT(own.losses(run).back(), 0.3 * own.losses(run).front());
  }
  EXPECT_EQ(own.train("refused", 1, {"--epochs", "none"}).status, 2);
}

TEST(OwnModelCommand, TwoTowersOnFourRanksLoseAsOnOne) {
  const OwnModel towers("two_towers");
  const std::vector<std::string> keys = {"train.steps=8", "train.micro_batch=16", "checkpoint.every=-1"};
  ASSERT_EQ(towers.train("one", 1, keys).status, 0);
  ASSERT_EQ(towers.train("four", 4, keys).status, 0);
  EXPECT_LT(most_apart(towers.losses("four"), towers.losses("one")), 2e-6);
}

// As herd train does: SIGTERM saves after the step, the death of a rank is named, and a restart goes on.
TEST(OwnModelCommand, SavesWhenItIsStopped_AndGoesOnWhereARankIsKilled) {
  const OwnModel own("two_towers");
  const fs::path binary = std::getenv("HERD_BINARY_DIR"), source = std::getenv("HERD_SOURCE_DIR");
  Command job({binary / "herd", "run", "-n", "2", "--max-restarts", "1", "--", binary / "examples" / "two_towers",
               source / "examples" / "two_towers.toml", "log.dir=" + own.root().string(), "log.name=killed",
               "log.every=1", "train.steps=100000", "checkpoint.every=3", "checkpoint.resume=none"},
              own.root() / "killed.output");
  ASSERT_TRUE(job.wait_for("step 8/")) << job.output();
  const pid_t victim = Command::process_of_rank(1, own.root().string(), "examples/two_towers");
  ASSERT_GT(victim, 0);
  kill(victim, SIGKILL);
  ASSERT_TRUE(job.wait_for("starting again")) << job.output();
  const size_t restarted = job.output().find("starting again");
  EXPECT_THAT(job.output().substr(0, restarted), testing::ContainsRegex("rank 1 .*(killed|SIGKILL)"));
  ASSERT_TRUE(job.wait_for("/100000", 120, restarted)) << job.output();
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output().substr(restarted),
              testing::AllOf(HasSubstr("resumed from"), HasSubstr("saved"), testing::Not(HasSubstr("step 1/"))));
  const std::vector<StepMetrics> steps = own.metrics("killed");
  EXPECT_EQ(steps.back().step, static_cast<int64_t>(steps.size()));  // none is missing, none is there twice
  const CheckpointReader reader(resolve_checkpoint(own.root() / "killed"));
  EXPECT_EQ(reader.manifest().step, steps.back().step);
}

TEST(OwnModelCommand, TheBertOfTheLectureTrainsUnderTorchrun) {
  const std::string python = python_with_torch();
  if (!python.starts_with("/")) GTEST_SKIP() << "no torchrun on this machine: scripts/setup makes a .venv that has it";
  const OwnModel own("bert_lecture");
  const std::vector<std::string> keys = {"train.steps=4", "train.batch=4", "train.micro_batch=2", "optimizer.lr=1e-3"};
  const Ended two = own.train_by({python, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2",
                                  "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--no-python"},
                                 "torchrun", keys);
  ASSERT_EQ(two.status, 0) << two.output;
  ASSERT_EQ(own.train("one", 1, keys).status, 0);
  EXPECT_LT(most_apart(own.losses("torchrun"), own.losses("one")), 1e-5);
}

// Activations of some 100 KiB: a rank keeps the budget that a refusal names, and hardly needs less.
TEST(OwnModelCommand, HoldsWhatIsPredicted) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> runs = {
      {"own_model", {}},
      {"own_model", {"strategy.recompute=full"}},
      {"own_model", {"strategy.zero=3", "strategy.precision=bf16"}},
      {"own_model", {"mesh.pp=2"}},
      {"bert_lecture", {"train.micro_batch=8", "train.batch=16"}},
      {"two_towers", {"train.micro_batch=1024", "train.batch=4096"}}};
  for (const auto& [name, more] : runs) {
    const OwnModel own(name);
    std::vector<std::string> keys = {"train.steps=3", "checkpoint.every=-1", "train.batch=256", "train.micro_batch=64"};
    keys.insert(keys.end(), more.begin(), more.end());
    std::vector<std::string> refused_keys = keys;
    refused_keys.emplace_back("memory.device_budget=1KiB");
    const Ended refused = own.train("run", 2, refused_keys);
    const std::string before = "memory.device_budget = \"";
    const size_t begin = refused.output.find(before);
    ASSERT_NE(begin, std::string::npos) << refused.output;
    const size_t at = begin + before.size();
    keys.push_back("memory.device_budget=" + refused.output.substr(at, refused.output.find('"', at) - at));
    const Ended ended = own.train("run", 2, keys);
    ASSERT_EQ(ended.status, 0) << name << ": " << ended.output;
    const StepMetrics last = own.metrics("run").back();
    const double share =
        static_cast<double>(last.device_bytes_peak) / static_cast<double>(last.predicted_device_bytes_peak);
    EXPECT_NEAR(share, 1, 0.03) << name << " " << keys.back() << " held " << last.device_bytes_peak;
  }
}

// Of the equal layers of a model, 1F1B holds two micro-batches on the first of two ranks. The fastest cut gives both as
// many layers; one that fits less memory gives the first rank fewer.
TEST(OwnModelCommand, TrainsInTheBudgetOfACutByMemory) {
  const OwnModel own("own_model");
  const std::vector<std::string> keys = {"mesh.pp=2", "train.steps=4", "checkpoint.every=-1", "train.batch=256",
                                         "train.micro_batch=64"};
  ASSERT_EQ(own.train("fastest", 2, keys).status, 0);
  const int64_t of_fastest = own.metrics("fastest").back().device_bytes_peak;
  const int64_t budget = of_fastest * 9 / 10 / 1024 * 1024;
  std::vector<std::string> in_budget = keys;
  in_budget.push_back("memory.device_budget=" + std::to_string(budget / 1024) + "KiB");
  const Ended ended = own.train("smaller", 2, in_budget);
  ASSERT_EQ(ended.status, 0) << ended.output;
  for (const StepMetrics& step : own.metrics("smaller")) EXPECT_LE(step.device_bytes_peak, budget);
  EXPECT_LT(most_apart(own.losses("smaller"), own.losses("fastest")), 2e-6);
  const fs::path binary = std::getenv("HERD_BINARY_DIR");
  const auto stages = [&](const std::string& run) {
    Command command({binary / "herd", "plan", own.root() / run / "config.toml", "--ranks", "2", "--stages"},
                    own.root() / "plan.output");
    EXPECT_EQ(command.wait(), 0);
    return command.output();
  };
  EXPECT_THAT(stages("fastest"), HasSubstr("patches to layer1"));
  EXPECT_THAT(stages("smaller"), HasSubstr("patches to layer0"));
  EXPECT_THAT(stages("smaller"), HasSubstr("of memory.device_budget = "));
}

TEST(OwnModelCommand, SaysHowItIsCalled_AndWhatARunFileMayNotHold) {
  const OwnModel own("own_model");
  const Ended ended = own.train("refused", 2, {"model.layers=3"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("leave out the keys of [model]"));
  RunFolder folder;
  Command help({fs::path(std::getenv("HERD_BINARY_DIR")) / "examples" / "own_model", "--help"}, folder.root / "help");
  EXPECT_EQ(help.wait(), 0);
  EXPECT_THAT(help.output(), HasSubstr("FILE.toml [section.key=value ...]"));
  Command late({fs::path(std::getenv("HERD_BINARY_DIR")) / "examples" / "own_model", "FILE", "--help"},
               folder.root / "late");
  EXPECT_EQ(late.wait(), 0);
  EXPECT_EQ(late.output(), help.output());
}

}  // namespace
}  // namespace herd::train
