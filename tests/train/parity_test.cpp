// The same losses for any number of ranks, micro-batched or not, with dropout and without, tied or not: 50 steps.
#include <gtest/gtest.h>

#include "command.h"

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

INSTANTIATE_TEST_SUITE_P(Layouts, Parity,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool(), testing::Bool()));

TEST(ParityCommand, Fails_WhenTheSidesTrainDifferently) {
  RunFolder folder;
  Command parity({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "parity", folder.root / "run.toml", "--a",
                  "mesh.dp=1", "--b", "mesh.dp=2 optimizer.lr=1e-3"},
                 folder.root / "parity.output");
  EXPECT_EQ(parity.wait(), 1) << parity.output();
  EXPECT_NE(parity.output().find("EXCEEDS"), std::string::npos) << parity.output();
}

}  // namespace
}  // namespace herd::train
