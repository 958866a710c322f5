// A folder that is put in place at once, through every fault.
#include "herd/storage/atomic_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "herd/storage/atomic_file.h"
#include "herd/storage/temporary_name.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

// Two files, config.json among them, that both say `text`.
void write_folder(const fs::path& path, const std::string& text, Replace replace, FileSystem& files) {
  AtomicFolder folder(path, replace, files);
  write_file_atomically(folder.working_path() / "config.json", text, files);
  write_file_atomically(folder.working_path() / "model.safetensors", text, files);
  folder.commit();
}

int entries_in(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

FileSystem& unsynced() {
  static FaultyFileSystem files(FaultyFileSystem::Fault::kNone, 0);
  return files;
}

TEST(AtomicFolder, IsThereWithAllItsFilesOnceCommitted_AndNothingBesideIt) {
  TemporaryFolder root;
  for (const char* name : {"a", "deep/er/b", "slash/"}) {
    write_folder(root / name, "new", Replace::kNever, unsynced());
    EXPECT_EQ(read_text(root / name / "model.safetensors"), "new");
    EXPECT_EQ(entries_in(root / name), 2);
  }
  EXPECT_EQ(entries_in(root.path()), 3);
}

TEST(AtomicFolder, DeletesWhatKilledProcessesLeftOnTheWayToItsPath_AndNothingElse) {
  TemporaryFolder root;
  const std::string dead = ".tmp.2147483647.0";
  for (const std::string& name : {"a" + dead, "b" + dead, std::string("thesis.tmp.old"), std::string("a.tmp.2024"),
                                  "a.tmp." + std::to_string(::getpid()) + ".999999999"}) {
    fs::create_directories(root / name / "inside");
  }
  write_folder(root / "a", "new", Replace::kNever, FileSystem::system());
  EXPECT_FALSE(fs::exists(root / ("a" + dead)));
  EXPECT_TRUE(fs::exists(root / ("b" + dead) / "inside"));
  EXPECT_TRUE(fs::exists(root / "thesis.tmp.old" / "inside"));
  EXPECT_TRUE(fs::exists(root / "a.tmp.2024" / "inside"));
  EXPECT_EQ(entries_in(root.path()), 5);
}

TEST(AtomicFolder, NeverFillsAFolderOrALinkThatHasItsTemporaryName) {
  TemporaryFolder root;
  fs::create_directory(root / "victim");
  const std::string next = temporary_name(root / "a").string();
  const size_t count = next.rfind('.') + 1;
  const int first = std::stoi(next.substr(count)) + 1;
  fs::create_directory_symlink(root / "victim", next.substr(0, count) + std::to_string(first));
  fs::create_directory(next.substr(0, count) + std::to_string(first + 1));
  write_folder(root / "a", "new", Replace::kNever, FileSystem::system());
  EXPECT_EQ(read_text(root / "a/config.json"), "new");
  EXPECT_TRUE(fs::is_empty(root / "victim"));
  EXPECT_TRUE(fs::is_empty(next.substr(0, count) + std::to_string(first + 1)));
}

TEST(AtomicFolder, RemovingATreeLeavesWhatItsLinksLeadTo) {
  TemporaryFolder root;
  fs::create_directories(root / "victim/inner");
  write_text(root / "victim/file", "mine");
  fs::create_directories(root / "tree/deep");
  fs::create_directory_symlink(root / "victim", root / "tree/deep/link");
  fs::create_directory_symlink(root / "victim", root / "link");
  remove_tree(root / "tree");
  remove_tree(root / "link");
  EXPECT_EQ(entries_in(root.path()), 1);
  EXPECT_EQ(entries_in(root / "victim"), 2);
}

TEST(AtomicFolder, WithoutCommitLeavesNothing) {
  TemporaryFolder root;
  {
    AtomicFolder folder(root / "a");
    write_text(folder.working_path() / "model.safetensors", "half");
  }
  EXPECT_EQ(entries_in(root.path()), 0);
}

TEST(AtomicFolder, TakesAnEmptyFolder_ButNoOtherUnlessAsked) {
  TemporaryFolder root;
  fs::create_directory(root / "a");
  write_folder(root / "a", "old", Replace::kNever, unsynced());
  EXPECT_ERROR(write_folder(root / "a", "new", Replace::kNever, unsynced()), Code::kBadConfig, "a is there already",
               "fix: another folder, or --overwrite");
  EXPECT_EQ(read_text(root / "a/model.safetensors"), "old");
  write_folder(root / "a", "new", Replace::kModels, unsynced());
  EXPECT_EQ(read_text(root / "a/model.safetensors"), "new");
  EXPECT_EQ(entries_in(root.path()), 1);
}

TEST(AtomicFolder, ReplacesAModelsOwnFiles_AndKeepsAllOthers) {
  TemporaryFolder root;
  write_folder(root / "a", "old", Replace::kNever, unsynced());
  write_file_atomically(root / "a" / "model-00002-of-00002.safetensors", "old", unsynced());
  write_file_atomically(root / "a" / "tokenizer.json", "mine", unsynced());
  fs::create_directories(root / "a" / "notes" / "deep");
  write_file_atomically(root / "a" / "notes" / "deep" / "README", "mine", unsynced());
  fs::create_symlink("notes", root / "a" / "see");
  write_folder(root / "a", "new", Replace::kModels, unsynced());
  EXPECT_EQ(read_text(root / "a" / "model.safetensors"), "new");
  EXPECT_EQ(read_text(root / "a" / "config.json"), "new");
  EXPECT_FALSE(fs::exists(root / "a" / "model-00002-of-00002.safetensors"));
  EXPECT_EQ(read_text(root / "a" / "tokenizer.json"), "mine");
  EXPECT_EQ(read_text(root / "a" / "notes" / "deep" / "README"), "mine");
  EXPECT_EQ(fs::read_symlink(root / "a" / "see"), "notes");
  EXPECT_EQ(entries_in(root.path()), 1);
}

TEST(AtomicFolder, NeverReplacesWhatIsNoModel) {
  TemporaryFolder root;
  fs::create_directory(root / "home");
  write_text(root / "home/letter", "dear");
  write_text(root / "file", "text");
  fs::create_directory(root / "site");
  write_text(root / "site/config.json", "of a web page");
  for (const char* name : {"home", "file", "site"})
    EXPECT_ERROR(write_folder(root / name, "new", Replace::kModels, unsynced()), Code::kBadConfig, "is no model",
                 "fix:");
  EXPECT_EQ(read_text(root / "home/letter"), "dear");
}

TEST(AtomicFolder, AFaultAtAnyCallLeavesOldOrNewWhole) {
  for (const bool replaces : {false, true}) {
    FaultyFileSystem counted(FaultyFileSystem::Fault::kNone, 0);
    {
      TemporaryFolder root;
      if (replaces) write_folder(root / "a", "old", Replace::kNever, unsynced());
      write_folder(root / "a", "new", Replace::kModels, counted);
    }
    ASSERT_GT(counted.calls(), 8);
    for (const auto fault : {FaultyFileSystem::Fault::kFail, FaultyFileSystem::Fault::kDie}) {
      for (int call = 0; call < counted.calls(); ++call) {
        TemporaryFolder root;
        if (replaces) write_folder(root / "a", "old", Replace::kNever, unsynced());
        FaultyFileSystem files(fault, call);
        try {
          write_folder(root / "a", "new", Replace::kModels, files);
        } catch (const Error&) {
        } catch (const Died&) {
        }
        if (!fs::exists(root / "a")) {
          EXPECT_FALSE(replaces) << "call " << call;
          continue;
        }
        const std::string text = read_text(root / "a/config.json");
        EXPECT_TRUE(text == "new" || (replaces && text == "old")) << "call " << call << ": " << text;
        EXPECT_EQ(read_text(root / "a/model.safetensors"), text) << "call " << call;
      }
    }
  }
}

}  // namespace
}  // namespace herd
