// The run file of a command that begins with weights: its model, and what is refused before any process starts.
#include "herd/cli/read_run_file.h"

#include <gtest/gtest.h>

#include "herd/convert/convert.h"
#include "tests/convert/model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::cli {
namespace {

namespace fs = std::filesystem;

class ReadRunFile : public testing::Test {
 protected:
  void SetUp() override {
    checkpoint_ = convert::save_model(root_ / "runs/first/checkpoints", convert::small_run());
    convert::convert({.source = checkpoint_, .out = root_ / "gpt2", .to = convert::Format::kGpt2},
                     convert::unsynced_files());
    write_text(root_ / "run.toml", "[log]\ndir = \"" + (root_ / "runs").string() + "\"\nname = \"mine\"\n");
  }
  spec::RunFile read(const fs::path& weights, std::vector<std::string> overrides = {}) {
    overrides.push_back("model.weights=" + weights.string());
    return read_run_file(root_ / "run.toml", overrides);
  }

  TemporaryFolder root_;
  fs::path checkpoint_;
};

TEST_F(ReadRunFile, TakesTheModelOfACheckpointOfARunAndOfAFolderOfTransformers) {
  const spec::RunFile::Model expected = convert::small_run().model;
  for (const fs::path& weights : {checkpoint_, root_ / "runs/first", root_ / "gpt2"}) {
    spec::RunFile run = read(weights);
    EXPECT_EQ(run.model.weights, weights == root_ / "gpt2" ? weights : checkpoint_);
    run.model.weights = expected.weights;
    EXPECT_EQ(run.model, expected) << weights;
  }
}

TEST_F(ReadRunFile, TellsRanksTheWholeModel) {
  const spec::RunFile run = read(root_ / "gpt2", {"model.context=5"});
  EXPECT_EQ(run.model.context, 5);
  EXPECT_EQ(spec::parse_run_file(root_ / "run.toml", model_overrides(run)), run);
}

TEST_F(ReadRunFile, RefusesWeightsThatAreNotThereBrokenOrOfAnotherModel) {
  EXPECT_ERROR(read(root_ / "nowhere"), Code::kBadConfig, "there is no folder", "nowhere", "fix:");
  EXPECT_ERROR(read(root_ / "gpt2", {"model.heads=4"}), Code::kBadConfig, "model.heads: 3 in the weights, 4", "fix:");
  EXPECT_ERROR(read(root_ / "gpt2", {"model.context=8"}), Code::kBadConfig, "longer than the 7 positions", "fix:");
  write_text(root_ / "gpt2/model.safetensors", "cut");
  EXPECT_ERROR(read(root_ / "gpt2"), Code::kCorruptFile, "model.safetensors");
  fs::remove(checkpoint_ / "shard-00000.safetensors");
  EXPECT_ERROR(read(checkpoint_), Code::kStorage, "shard-00000.safetensors");
}

TEST_F(ReadRunFile, HasTheModelOfItsOwnCheckpoint_WhereTheRunGoesOn) {
  convert::save_model(root_ / "runs/mine/checkpoints", convert::small_run({"model.context=6"}));
  EXPECT_EQ(read(root_ / "nowhere").model.context, 6) << "the weights it began with are needed no more";
  EXPECT_EQ(read(root_ / "nowhere", {"checkpoint.resume=" + checkpoint_.string()}).model.context, 7);
  EXPECT_EQ(read(root_ / "gpt2", {"checkpoint.resume=none"}).model.context, 7);
}

TEST_F(ReadRunFile, StillNamesTheCheckpointThatARunBeganWith_WhereItGoesOn) {
  convert::save_model(root_ / "runs/mine/checkpoints", convert::small_run({"model.weights=" + checkpoint_.string()}));
  EXPECT_EQ(read(root_ / "runs/first").model.weights, checkpoint_);
  EXPECT_EQ(read(checkpoint_).model.weights, checkpoint_);
  EXPECT_EQ(read(root_ / "runs/firs").model.weights, root_ / "runs/firs") << "another folder";
}

}  // namespace
}  // namespace herd::cli
