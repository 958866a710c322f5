// How a run starts in a folder that is empty, its own, or another run's.
#include "herd/storage/run_folder.h"

#include <gtest/gtest.h>

#include "checkpoint_fixture.h"
#include "tests/support/as_nobody.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

void write_record(const fs::path& folder, const std::string& run, const std::string& job,
                  const std::string& began = "") {
  fs::create_directories(folder);
  write_text(folder / "run.json",
             R"({"format":"herd-run","run":")" + run + R"(","job":")" + job + R"(","began":")" + began + "\"}");
}

// A run "one" of job "first", with checkpoints of steps 4 and 8, metrics, logs and the lock.
fs::path used_folder(const TemporaryFolder& root) {
  const fs::path folder = root / "run";
  write_record(folder, "one", "first");
  for (const int64_t step : {4, 8}) save_numbers(folder / "checkpoints", step, unsynced_files(), "one");
  write_text(folder / "metrics.jsonl", "{}\n{\"step\":1}\n");
  write_text(folder / "config.toml", "[train]\n");
  write_text(folder / "lock", "me");
  fs::create_directory(folder / "logs");
  write_text(folder / "logs/rank0.log", "words");
  write_text(folder / "thesis.txt", "mine");
  return folder;
}

TEST(RunFolder, AnEmptyFolderGetsANewRun_WhateverResumeSays) {
  TemporaryFolder root;
  for (const char* resume : {"auto", "none"}) {
    const RunStart start = plan_start(root / "run", {.resume = resume});
    EXPECT_EQ(start.run.size(), 16u);
    EXPECT_FALSE(start.checkpoint);
    EXPECT_FALSE(start.sets_aside);
  }
  EXPECT_NE(plan_start(root / "run", {}).run, plan_start(root / "run", {}).run);
}

TEST(RunFolder, AutoGoesOnWithTheFoldersRun) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  const RunStart start = plan_start(folder, {});
  EXPECT_EQ(start.run, "one");
  EXPECT_EQ(*start.checkpoint, folder / "checkpoints/step-00000008");
  save_numbers(folder / "checkpoints", 99, unsynced_files(), "stranger");
  EXPECT_EQ(*plan_start(folder, {}).checkpoint, folder / "checkpoints/step-00000008") << "its own comes first";
  fs::remove(folder / "run.json");
  EXPECT_EQ(plan_start(folder, {}).run, "stranger") << "the checkpoint says whose it is";
}

TEST(RunFolder, AutoRefusesToBeginAgain_WhereItMayNotSeeWhatIsThere) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  fs::permissions(root.path(), fs::perms(0755));
  for (const char* closed : {"checkpoints", "checkpoints/step-00000008", "run.json"}) {
    const auto before = fs::status(folder / closed).permissions();
    fs::permissions(folder / closed, fs::perms::none);
    {
      const AsNobody nobody;
      EXPECT_ERROR(plan_start(folder, {}), Code::kStorage, "Permission denied", "fix: give this user");
    }
    fs::permissions(folder / closed, before);
  }
  fs::permissions(folder / "metrics.jsonl", fs::perms::none);
  fs::remove_all(folder / "checkpoints");
  const AsNobody nobody;
  EXPECT_ERROR(is_used(folder), Code::kStorage, "metrics.jsonl: Permission denied", "fix: give this user");
}

TEST(RunFolder, AutoRefusesToBeginAgain_WhenNoCheckpointIsWhole) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  for (const char* step : {"step-00000004", "step-00000008"})
    fs::resize_file(folder / "checkpoints" / step / "shard-00000.safetensors", 10);
  EXPECT_ERROR(plan_start(folder, {}), Code::kCorruptFile, "step-00000008", "none of the checkpoints", "is whole",
               "fix:");
}

TEST(RunFolder, ANewRunIsRefusedInAUsedFolder_WithAllThreeWaysOut) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  EXPECT_ERROR(plan_start(folder, {.resume = "none"}), Code::kBadConfig, "checkpoint.resume = \"none\"",
               "run one with 2 checkpoints, the newest of step 8", "another log.name", "checkpoint.resume = \"auto\"",
               "checkpoint.used_folder = \"set_aside\"");
  const auto other = save_numbers(root / "other/checkpoints", 3, unsynced_files(), "two");
  EXPECT_ERROR(plan_start(folder, {.resume = other}), Code::kBadConfig, "starts a new run");
  EXPECT_ERROR(plan_start(folder, {.resume = folder / "checkpoints/step-00000004"}), Code::kBadConfig,
               "starts a new run");
  fs::remove_all(folder / "checkpoints");
  EXPECT_ERROR(plan_start(folder, {.resume = "none"}), Code::kBadConfig, "with metrics and no checkpoint");
  write_text(folder / "metrics.jsonl", "{}\n");
  EXPECT_FALSE(plan_start(folder, {.resume = "none"}).sets_aside) << "it never made a step";
}

TEST(RunFolder, TellsWhetherARunBeginsWithACheckpointOrGoesOn) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  EXPECT_FALSE(plan_start(folder, {}).begins_with_checkpoint());
  EXPECT_FALSE(plan_start(root / "other", {}).begins_with_checkpoint());
  EXPECT_TRUE(plan_start(root / "other", {.resume = folder}).begins_with_checkpoint());
  const StartRequest older{.resume = folder / "checkpoints/step-00000004", .used = UsedFolder::kSetAside};
  EXPECT_TRUE(plan_start(folder, older).begins_with_checkpoint());
}

TEST(RunFolder, IsFinished_WhereItEndedAtTheLastStep_OrPastIt) {
  TemporaryFolder root;
  EXPECT_FALSE(is_finished(root.path(), 7, 8));
  EXPECT_FALSE(is_finished(root.path(), 8, 8)) << "it has not ended";
  EXPECT_TRUE(is_finished(root.path(), 9, 8));
  write_text(root / "run.json", R"({"ended_at":7})");
  EXPECT_FALSE(is_finished(root.path(), 8, 8)) << "the start before it ended";
  write_text(root / "run.json", R"({"ended_at":8})");
  EXPECT_TRUE(is_finished(root.path(), 8, 8));
  EXPECT_FALSE(is_finished(root.path(), 7, 8));
}

TEST(RunFolder, ItsOwnNewestCheckpointByPathIsAsAuto) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  for (const fs::path& path : {folder, folder / "checkpoints", folder / "checkpoints/step-00000008"}) {
    const RunStart start = plan_start(folder, {.resume = path});
    EXPECT_EQ(start.run, "one") << path;
    EXPECT_EQ(start.checkpoint->filename(), "step-00000008");
  }
}

TEST(RunFolder, SettingAsideMovesTheWholeRun_AndNothingElse) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  const RunStart start = plan_start(folder, {.resume = "none", .used = UsedFolder::kSetAside});
  EXPECT_TRUE(start.sets_aside);
  EXPECT_NE(start.run, "one");
  const fs::path aside = set_aside(folder);
  EXPECT_EQ(aside, folder / "set_aside/one");
  EXPECT_FALSE(is_used(folder));
  EXPECT_EQ(load_numbers(resolve_checkpoint(aside)), numbers(8));
  EXPECT_EQ(read_run_record(aside).run, "one");
  EXPECT_EQ(read_text(aside / "config.toml"), "[train]\n");
  for (const char* stays : {"lock", "logs/rank0.log", "thesis.txt"}) EXPECT_TRUE(fs::exists(folder / stays)) << stays;
  EXPECT_EQ(path_after_set_aside(folder / "checkpoints/step-00000004", folder, aside),
            aside / "checkpoints/step-00000004");
  EXPECT_EQ(path_after_set_aside(root / "elsewhere", folder, aside), root / "elsewhere");
}

TEST(RunFolder, SettingAsideGoesOnWhereItWasStopped_AndNeverOverwrites) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  fs::create_directories(folder / "set_aside/one");
  for (const char* moved : {"config.toml", "metrics.jsonl", "run.json"})  // stopped before the checkpoints
    fs::rename(folder / moved, folder / "set_aside/one" / moved);
  EXPECT_EQ(set_aside(folder), folder / "set_aside/one");
  EXPECT_EQ(load_numbers(resolve_checkpoint(folder / "set_aside/one")), numbers(8));
  save_numbers(folder / "checkpoints", 12, unsynced_files(), "one");
  EXPECT_EQ(set_aside(folder), folder / "set_aside/one-2");
  EXPECT_EQ(load_numbers(resolve_checkpoint(folder / "set_aside/one")), numbers(8));
}

TEST(RunFolder, ARestartGoesOnWithItsOwnRun_WhateverResumeSays) {
  TemporaryFolder root;
  const fs::path folder = used_folder(root);
  const auto other = save_numbers(root / "other/checkpoints", 3, unsynced_files(), "two");
  for (const std::string& resume : {std::string("none"), other.string()}) {
    const RunStart start = plan_start(folder, {.resume = resume, .job = "first", .restart = 1});
    EXPECT_EQ(start.run, "one");
    EXPECT_EQ(start.checkpoint->filename(), "step-00000008");
    EXPECT_ERROR(plan_start(folder, {.resume = resume, .job = "second", .restart = 1}), Code::kBadConfig,
                 "starts a new run");
  }
}

TEST(RunFolder, ARestartBeforeTheFirstSaveBeginsAsTheRunBegan) {
  TemporaryFolder root;
  const fs::path folder = root / "run";
  const auto other = save_numbers(root / "other/checkpoints", 3, unsynced_files(), "two");
  write_record(folder, "one", "first");
  write_text(folder / "metrics.jsonl", "{}\n{\"step\":1}\n");
  RunStart start = plan_start(folder, {.resume = "none", .job = "first", .restart = 2});
  EXPECT_EQ(start.run, "one");
  EXPECT_FALSE(start.checkpoint);
  write_record(folder, "one", "first", other);
  start = plan_start(folder, {.resume = "gone/with/the/set/aside", .job = "first", .restart = 2});
  EXPECT_EQ(start.run, "one");
  EXPECT_EQ(*start.checkpoint, other);
}

}  // namespace
}  // namespace herd
