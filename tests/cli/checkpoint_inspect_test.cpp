#include "herd/cli/checkpoint_inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/storage/checkpoint_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::cli {
namespace {

TEST(CheckpointInspect, ShowsStepTensorsAndRunFileOfTheNewest) {
  TemporaryFolder folder;
  save_numbers(folder / "checkpoints", 1);
  const auto newest = save_numbers(folder / "checkpoints", 2);
  const std::string text = inspect_checkpoint({.path = folder.path()});
  for (const std::string& words : std::initializer_list<std::string>{
           newest.string(), "step 2, 24 samples, written by herd 0.1.0", "4 x 6", "2 pieces", "int64",
           "2 tensors, 104 B in 2 files; checksums not read (--verify)", "steps = 3"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text << "\nlacks " << words;
  }
}

TEST(CheckpointInspect, PrintsOneJsonObject) {
  TemporaryFolder folder;
  const auto path = save_numbers(folder.path(), 7);
  const auto json = nlohmann::json::parse(inspect_checkpoint({.path = path, .verify = true, .json = true}));
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["tensors"][1],
            (nlohmann::json{{"name", "w"}, {"dtype", "fp32"}, {"shape", {4, 6}}, {"bytes", 96}, {"pieces", 2}}));
}

// Names that would clear the screen, and pretend to be a line of their own.
TEST(CheckpointInspect, ObeysNoNameOfTheFile) {
  const std::string evil =
      "\x1b[2J\x1b]0;title\x07\xC2\x9B"
      "31m\nfix: evil";
  TemporaryFolder folder;
  const auto path = save_numbers(folder.path(), 1);
  Manifest manifest = read_manifest(path);
  manifest.tensors[evil] = manifest.tensors["w"];
  manifest.notes[evil] = evil;
  manifest.herd_version = evil;
  manifest.config += "# \x1b[2J\n";
  write_manifest(path, manifest);
  for (const bool json : {false, true}) {
    const std::string text = inspect_checkpoint({.path = path, .json = json});
    for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F)) << static_cast<int>(c);
    EXPECT_EQ(text.find("\nfix: evil"), text.npos);
    EXPECT_NE(text.find(json ? "\\u001b[2J" : "\\x1b[2J\\x1b]0;title\\x07\\xc2\\x9b31m\\x0afix: evil"), text.npos)
        << text;
  }
}

TEST(CheckpointInspect, VerifyFindsWhatInspectingAloneDoesNotRead) {
  TemporaryFolder folder;
  const auto path = save_numbers(folder.path(), 1);
  std::string shard = read_text(path / "shard-00001.safetensors");
  shard.back() = static_cast<char>(shard.back() ^ 1);
  write_text(path / "shard-00001.safetensors", shard);
  inspect_checkpoint({.path = path});
  EXPECT_ERROR(inspect_checkpoint({.path = path, .verify = true}), Code::kCorruptFile,
               "shard-00001.safetensors at byte", "checksum", "\"w#7:24\"", "fix:");
}

TEST(CheckpointInspect, SaysWhereItLookedForACheckpoint) {
  TemporaryFolder folder;
  EXPECT_ERROR(inspect_checkpoint({.path = folder / "runs"}), Code::kBadConfig, "no checkpoint at", "runs", "fix:");
}

}  // namespace
}  // namespace herd::cli
