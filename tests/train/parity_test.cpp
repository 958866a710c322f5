// The same losses for any number of ranks, micro-batched or not, with dropout and without, tied or not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "command.h"
#include "herd/storage/metrics.h"

namespace herd::train {
namespace {

class Parity : public testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(Parity, HoldsOverFiftySteps) {
  const auto [ranks, dropout, tied] = GetParam();
  RunFolder folder;
  Command parity(
      {fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "parity", folder.root / "run.toml", "--a", "mesh.dp=1", "--b",
       "mesh.dp=" + std::to_string(ranks) + " train.micro_batch=1", "train.steps=50", "train.batch=8",
       "train.threads=1", "train.eval_every=0", std::string("model.dropout=") + (dropout ? "0.1" : "0.0"),
       std::string("model.tie_embeddings=") + (tied ? "true" : "false")},
      folder.root / "parity.output");
  EXPECT_EQ(parity.wait(), 0) << parity.output();
}

// Each number of ranks once, dropout and tied both ways; the product with HERD_FULL_TESTS=1.
std::vector<std::tuple<int, bool, bool>> layouts() {
  std::vector<std::tuple<int, bool, bool>> all;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool dropout : {false, true}) {
      for (const bool tied : {false, true}) {
        const bool drawn = dropout == (ranks % 2 == 1) && tied == (ranks > 2);
        if (drawn || std::getenv("HERD_FULL_TESTS") != nullptr) all.emplace_back(ranks, dropout, tied);
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Parity, testing::ValuesIn(layouts()));

TEST(LongParity, HoldsOverTwoHundredSteps_ForOneToFourRanks) {
  RunFolder folder;
  const auto losses = [&](int ranks, int micro_batch) {
    const std::string name = "ranks" + std::to_string(ranks);
    const Ended ended = folder.train(name, ranks,
                                     {"train.steps=200", "train.batch=8", "train.threads=1", "train.eval_every=0",
                                      "checkpoint.every=0", "train.micro_batch=" + std::to_string(micro_batch)});
    EXPECT_EQ(ended.status, 0) << ended.output;
    std::vector<double> found;
    for (const StepMetrics& step : read_metrics(folder.root / name / "metrics.jsonl")) found.push_back(step.loss);
    return found;
  };
  const std::vector<double> one = losses(1, 8);
  ASSERT_EQ(one.size(), 200u);
  for (const int ranks : {2, 3, 4}) {
    const std::vector<double> many = losses(ranks, ranks == 4 ? 1 : 2);
    ASSERT_EQ(many.size(), one.size());
    double worst = 0;
    for (size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(many[i] - one[i]) / one[i]);
    EXPECT_LT(worst, 1e-4) << ranks << " ranks";
    RecordProperty("worst_of_" + std::to_string(ranks), std::to_string(worst));
  }
}

TEST(ParityCommand, Fails_WhenTheSidesTrainDifferently) {
  RunFolder folder;
  Command parity({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "parity", folder.root / "run.toml", "--a",
                  "mesh.dp=1", "--b", "mesh.dp=2 optimizer.lr=1e-3"},
                 folder.root / "parity.output");
  EXPECT_EQ(parity.wait(), 1) << parity.output();
  EXPECT_NE(parity.output().find("EXCEEDS"), std::string::npos) << parity.output();
}

TEST(ParityCommand, FailsWhereItsAnswerCanNotBeWritten) {
  RunFolder folder;
  const std::string program = fs::path(std::getenv("HERD_BINARY_DIR")) / "herd";
  Command parity({"/bin/sh", "-c",
                  program + " parity " + (folder.root / "run.toml").string() +
                      " --a mesh.dp=1 --b strategy.recompute=full train.steps=1 train.eval_every=0 > /dev/full"},
                 folder.root / "parity.output");
  EXPECT_EQ(parity.wait(), 1) << parity.output();
  EXPECT_NE(parity.output().find("the standard output can't be written"), std::string::npos) << parity.output();
}

}  // namespace
}  // namespace herd::train
