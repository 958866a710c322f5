// Writing, reading, choosing and deleting checkpoints, through every fault.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <map>
#include <string>

#include "herd/storage/atomic_file.h"
#include "herd/storage/safetensors.h"
#include "tests/storage/checkpoint_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

std::optional<std::filesystem::path> newest(const std::filesystem::path& root) {
  std::vector<std::string> passed_over;
  const auto found = newest_whole_checkpoint(root, passed_over);
  return found ? std::optional(found->folder) : std::nullopt;
}

TEST(Checkpoint, AnySliceIsReadFromWhicheverShardsHoldIt) {
  TemporaryFolder folder;
  CheckpointReader reader(save_numbers(folder.path(), 1));
  EXPECT_EQ(reader.manifest().step, 1);
  EXPECT_EQ(reader.manifest().samples, 12);
  for (int64_t begin = 0; begin <= 24; ++begin) {
    for (int64_t end = begin; end <= 24; ++end) {
      std::vector<float> values(static_cast<size_t>(end - begin));
      reader.read("w", slice_of_elements({4, 6}, begin, end), std::as_writable_bytes(std::span(values)));
      for (int64_t i = begin; i < end; ++i)
        EXPECT_EQ(values[static_cast<size_t>(i - begin)], 1000.0f + static_cast<float>(i));
    }
  }
  std::vector<float> columns(8);  // columns 2 and 3
  reader.read("w", {{{0, 4}, {2, 4}}, {0, 8}}, std::as_writable_bytes(std::span(columns)));
  EXPECT_EQ(columns, (std::vector<float>{1002, 1003, 1008, 1009, 1014, 1015, 1020, 1021}));
  reader.verify();
  EXPECT_ERROR(reader.read("v", whole_slice({}), {}), Code::kBadConfig, "no tensor \"v\"");
  EXPECT_ERROR(reader.read("w", slice_of_elements({4, 6}, 0, 25), {}), Code::kBadConfig, "elements [0, 25)");
}

TEST(Checkpoint, AShardStatesTheNotesOfItsRank) {
  TemporaryFolder folder;
  const std::vector<float> values(2);
  const auto path = new_checkpoint_folder(folder.path(), 1);
  write_shard(path, 3, {{"w", DType::kF32, {2}, whole_slice({2}), std::as_bytes(std::span(values))}}, unsynced_files(),
              {{"updates", "12"}});
  const std::map<std::string, std::string> expected = {{"format", "pt"}, {"updates", "12"}};
  EXPECT_EQ(SafetensorsFile(path / "shard-00003.safetensors").metadata(), expected);
}

TEST(Checkpoint, EveryElementMustComeFromExactlyOneRank) {
  TemporaryFolder folder;
  const std::vector<float> values(6);
  const auto bytes = std::as_bytes(std::span(values));
  const auto save = [&](int64_t a_end, int64_t b_begin) {
    const auto path = new_checkpoint_folder(folder.path(), 1);
    const auto a = write_shard(
        path, 0,
        {{"w", DType::kF32, {6}, slice_of_elements({6}, 0, a_end), bytes.first(static_cast<size_t>(4 * a_end))}});
    const auto b = write_shard(
        path, 1,
        {{"w", DType::kF32, {6}, slice_of_elements({6}, b_begin, 6), bytes.subspan(static_cast<size_t>(4 * b_begin))}});
    commit_checkpoint(path, {}, {a, b});
  };
  EXPECT_ERROR(save(4, 3), Code::kBadConfig, "\"w\"", "[3, 4) are held twice", "fix:");
  EXPECT_ERROR(save(3, 4), Code::kBadConfig, "\"w\"", "[3, 4) are held by nobody");
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
}

TEST(Checkpoint, AFullDiskAtAnyCallLeavesTheOldOneAndNamesTheFile) {
  FaultyFileSystem whole(FaultyFileSystem::Fault::kNone, 0);
  {
    TemporaryFolder folder;
    save_numbers(folder.path(), 2, whole);
  }
  ASSERT_GE(whole.calls(), 20);
  for (int call = 0; call < whole.calls(); ++call) {
    TemporaryFolder folder;
    const auto old = save_numbers(folder.path(), 1);
    FaultyFileSystem files(FaultyFileSystem::Fault::kFail, call);
    EXPECT_ERROR(save_numbers(folder.path(), 2, files), Code::kStorage, "step-00000002");
    const auto found = newest(folder.path());
    ASSERT_TRUE(found);
    EXPECT_EQ(load_numbers(*found), numbers(found->filename() == old.filename() ? 1 : 2));
    EXPECT_TRUE(*found == old || call == whole.calls() - 1)
        << "only the last call, the folder's sync, comes after the rename";
  }
}

// Saves step 2 on a file system that dies; step 1 or 2 is there afterwards, and saving it again succeeds.
void expect_survives(FaultyFileSystem::Fault fault, int64_t at) {
  SCOPED_TRACE("dies at " + std::to_string(at));
  TemporaryFolder folder;
  save_numbers(folder.path(), 1);
  FaultyFileSystem files(fault, static_cast<int>(at));
  EXPECT_THROW(save_numbers(folder.path(), 2, files), Died);
  const auto found = newest(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(load_numbers(*found), numbers(found->filename() == "step-00000001" ? 1 : 2));
  const auto again = save_numbers(folder.path(), 2);
  EXPECT_EQ(newest(folder.path()), again);
  EXPECT_EQ(load_numbers(again), numbers(2));
}

TEST(Checkpoint, AKillAtAnyCallOrByteLeavesOneThatLoads_AndTheNextSaveOfThatStepSucceeds) {
  FaultyFileSystem whole(FaultyFileSystem::Fault::kNone, 0);
  {
    TemporaryFolder folder;
    save_numbers(folder.path(), 2, whole);
  }
  for (int call = 0; call < whole.calls(); ++call) expect_survives(FaultyFileSystem::Fault::kDie, call);
  ASSERT_GT(whole.written(), 1000);
  for (int64_t byte = 0; byte < whole.written(); ++byte) expect_survives(FaultyFileSystem::Fault::kDieAtByte, byte);
}

TEST(Checkpoint, EveryChangedByteOfAShardIsFound_NamingFileAndRule_AndTheOldOneIsChosen) {
  TemporaryFolder folder;
  const auto old = save_numbers(folder.path(), 1), fresh = save_numbers(folder.path(), 2);
  const auto shard = fresh / "shard-00001.safetensors";
  const std::string good = read_text(shard);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    write_text(shard, bad);
    try {
      CheckpointReader(fresh).verify();
      EXPECT_LT(at, good.size() - 68) << "only metadata and padding of the header may change unseen";
      EXPECT_EQ(load_numbers(fresh), numbers(2));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorruptFile);
      EXPECT_NE(error.message().find("shard-00001.safetensors at byte"), std::string::npos) << error.what();
      EXPECT_NE(error.message().find("fix:"), std::string::npos);
      EXPECT_EQ(newest(folder.path()), old);
    }
  }
}

TEST(Checkpoint, EveryTruncationOfAShardOrTheManifestIsFound) {
  TemporaryFolder folder;
  const auto old = save_numbers(folder.path(), 1), fresh = save_numbers(folder.path(), 2);
  for (const char* name : {"shard-00000.safetensors", "manifest.json"}) {
    const std::string good = read_text(fresh / name);
    for (size_t length = 0; length + 2 < good.size(); length += 7) {
      write_text(fresh / name, good.substr(0, length));
      EXPECT_ERROR(CheckpointReader(fresh).verify(), Code::kCorruptFile, name, "at byte", "fix:");
      EXPECT_EQ(newest(folder.path()), old);
    }
    write_text(fresh / name, good);
  }
  std::filesystem::remove(fresh / "shard-00000.safetensors");
  EXPECT_ERROR(CheckpointReader{fresh}, Code::kStorage, "shard-00000.safetensors", "No such file", "fix:");
  EXPECT_EQ(newest(folder.path()), old);
}

TEST(Checkpoint, SavingAStepAgainKeepsTheFirstUntilTheSecondIsWhole) {
  TemporaryFolder folder;
  const auto first = save_numbers(folder.path(), 5), second = save_numbers(folder.path(), 5);
  EXPECT_EQ(second.filename(), "step-00000005-2");
  EXPECT_EQ(newest(folder.path()), second);
  EXPECT_EQ(load_numbers(first), load_numbers(second));
}

TEST(Checkpoint, KeepingDeletesTheOldest_NeverTheLastGoodOne) {
  TemporaryFolder folder;
  for (int64_t step = 1; step <= 4; ++step) save_numbers(folder.path(), step);
  write_text(folder / "step-00000004" / "manifest.json", "broken");
  std::filesystem::create_directories(folder / "step-00000000");  // a save that was cut short
  write_text(folder / "notes.txt", "mine");
  EXPECT_TRUE(keep_newest(folder.path(), {.newest = 1}).empty());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"notes.txt", "step-00000003", "step-00000004"}));
  EXPECT_EQ(load_numbers(*newest(folder.path())), numbers(3));
}

TEST(Checkpoint, KeepingNeverDeletesWhatWasJustWritten_NorAnotherRuns) {
  TemporaryFolder folder;
  for (const int64_t step : {7, 8, 9}) save_numbers(folder.path(), step, unsynced_files(), "other");
  for (const int64_t step : {10, 20}) save_numbers(folder.path(), step, unsynced_files(), "mine");
  const auto written = save_numbers(folder.path(), 5, unsynced_files(), "mine");
  EXPECT_TRUE(keep_newest(folder.path(), {.newest = 2, .run = "mine", .written = written}).empty());
  std::vector<int64_t> left;
  for (const FoundCheckpoint& one : list_checkpoints(folder.path())) left.push_back(one.step);
  EXPECT_EQ(left, (std::vector<int64_t>{20, 9, 8, 7, 5}));
  EXPECT_TRUE(keep_newest(folder.path(), {.newest = 1, .run = "mine", .written = written}).empty());
  EXPECT_EQ(load_numbers(written), numbers(5));
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 4u);
}

TEST(Checkpoint, TheNewestOfARunIsFoundAmongOthers_AndThoseWithoutAnIdAreAnyones) {
  TemporaryFolder folder;
  save_numbers(folder.path(), 9, unsynced_files(), "other");
  const auto mine = save_numbers(folder.path(), 5, unsynced_files(), "mine");
  std::vector<std::string> passed_over;
  EXPECT_EQ(newest_whole_checkpoint(folder.path(), passed_over, "mine")->folder, mine);
  EXPECT_EQ(newest_whole_checkpoint(folder.path(), passed_over)->step, 9);
  EXPECT_FALSE(newest_whole_checkpoint(folder.path(), passed_over, "third"));
  save_numbers(folder.path(), 6);
  EXPECT_EQ(newest_whole_checkpoint(folder.path(), passed_over, "mine")->step, 6);
  EXPECT_TRUE(passed_over.empty());
}

TEST(Checkpoint, AKillWhileDeletingLeavesNoHalfCheckpoint) {
  for (int call = 0; call < 12; ++call) {
    TemporaryFolder folder;
    for (int64_t step = 1; step <= 3; ++step) save_numbers(folder.path(), step);
    FaultyFileSystem files(FaultyFileSystem::Fault::kDie, call);
    try {
      keep_newest(folder.path(), {.newest = 1}, files);
    } catch (const Died&) {
    }
    for (const auto& one : list_checkpoints(folder.path())) EXPECT_EQ(load_numbers(one.folder), numbers(one.step));
    EXPECT_EQ(newest(folder.path())->filename(), "step-00000003");
    keep_newest(folder.path(), {.newest = 1});
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  }
}

TEST(Checkpoint, ResolvesARunAFolderOfCheckpointsOrOne) {
  TemporaryFolder folder;
  EXPECT_ERROR(resolve_checkpoint(folder.path()), Code::kBadConfig, "no checkpoint", "fix:");
  EXPECT_ERROR(resolve_checkpoint(folder / "no"), Code::kBadConfig, "no checkpoint");
  const auto one = save_numbers(folder / "checkpoints", 1), two = save_numbers(folder / "checkpoints", 2);
  EXPECT_EQ(resolve_checkpoint(folder.path()), two);
  EXPECT_EQ(resolve_checkpoint(folder / "checkpoints"), two);
  EXPECT_EQ(resolve_checkpoint(one), one);
  write_text(two / "manifest.json", "x");
  write_text(one / "manifest.json", "x");
  EXPECT_ERROR(resolve_checkpoint(folder.path()), Code::kCorruptFile, "step-00000002", "not JSON");
}

TEST(Checkpoint, ADiskThatIsReallyFullIsReportedBeforeTheWorkIsDone) {
  TemporaryFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "a small file system can't be mounted here (only root may)";
  }
  const auto old = save_numbers(folder / "run", 1);
  const std::vector<float> values(200000);
  const auto path = new_checkpoint_folder(folder / "run", 2);
  EXPECT_ERROR(
      write_shard(path, 0, {{"w", DType::kF32, {200000}, whole_slice({200000}), std::as_bytes(std::span(values))}}),
      Code::kStorage, "shard-00000.safetensors", "needs 800", "are free", "fix:");
  EXPECT_TRUE(std::filesystem::is_empty(path));
  EXPECT_EQ(newest(folder / "run"), old);
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace herd
