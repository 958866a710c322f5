#include "herd/storage/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "herd/storage/temporary_name.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

int files_in(const std::filesystem::path& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

void write_parts(const std::filesystem::path& path, FileSystem& files) {
  AtomicFile file(path, files);
  file.reserve(9);
  file.write(std::string_view("new"));
  file.write(std::string_view("bytes!"));
  file.write_at(0, std::as_bytes(std::span("NEW", 3)));
  file.commit();
}

TEST(AtomicFile, ReplacesTheOldFileOnCommit) {
  TemporaryFolder folder;
  write_text(folder / "x", "old");
  AtomicFile file(folder / "x");
  file.write(std::string_view("new"));
  EXPECT_EQ(read_text(folder / "x"), "old");
  file.commit();
  EXPECT_EQ(read_text(folder / "x"), "new");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, WithoutCommitLeavesTheOldFileAndNothingElse) {
  TemporaryFolder folder;
  write_text(folder / "x", "old");
  { AtomicFile(folder / "x").write(std::string_view("new")); }
  EXPECT_EQ(read_text(folder / "x"), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, AFullDiskAtAnyCallKeepsOldOrNew_RemovesTheTemporaryAndSaysHowMuchIsMissing) {
  FaultyFileSystem whole(FaultyFileSystem::Fault::kNone, 0);
  {
    TemporaryFolder folder;
    write_parts(folder / "x", whole);
  }
  ASSERT_GE(whole.calls(), 8);
  for (int call = 0; call < whole.calls(); ++call) {
    TemporaryFolder folder;
    write_text(folder / "x", "old");
    FaultyFileSystem files(FaultyFileSystem::Fault::kFail, call);
    if (call == 0) {
      EXPECT_ERROR(write_parts(folder / "x", files), Code::kStorage, "create", "x");
    } else {
      EXPECT_ERROR(write_parts(folder / "x", files), Code::kStorage, "x", "needs", "9 bytes", "are free", "fix:");
    }
    const bool renamed = call == whole.calls() - 1;  // only the folder's sync failed: the new file is there
    EXPECT_EQ(read_text(folder / "x"), renamed ? "NEWbytes!" : "old");
    EXPECT_EQ(files_in(folder.path()), 1) << "call " << call;
  }
}

TEST(AtomicFile, AKillAtAnyCallKeepsOldOrNew_AndTheNextProcessCleansUp) {
  FaultyFileSystem whole(FaultyFileSystem::Fault::kNone, 0);
  {
    TemporaryFolder folder;
    write_parts(folder / "x", whole);
  }
  for (int call = 0; call < whole.calls(); ++call) {
    TemporaryFolder folder;
    write_text(folder / "x", "old");
    FaultyFileSystem files(FaultyFileSystem::Fault::kDie, call);
    EXPECT_THROW(write_parts(folder / "x", files), Died);
    const std::string text = read_text(folder / "x");
    EXPECT_TRUE(text == "old" || text == "NEWbytes!") << text;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().filename() == "x") continue;
      std::filesystem::rename(entry.path(), folder / "x.tmp.2147483647.0");  // as if by a process that is gone
    }
    write_text(folder / ("x.tmp." + std::to_string(::getpid()) + ".9"), "of a living process");
    remove_stale_temporaries(folder.path());
    EXPECT_EQ(files_in(folder.path()), 2);
  }
}

// As in a container whose first process waits for nobody: its number stays known to the system.
TEST(AtomicFile, WhatAKilledProcessLeft_IsStaleThoughNobodyHasWaitedForIt) {
  TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  write_text(folder / ("x.tmp." + std::to_string(child) + ".0"), "half");
  remove_stale_temporaries(folder.path());
  EXPECT_EQ(files_in(folder.path()), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(AtomicFile, ARealLimitOnFileSizeIsReportedLikeAFullDisk) {
  TemporaryFolder folder;
  write_text(folder / "x", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomically(folder / "x", std::string(10000, 'x'));
      ::_exit(1);
    } catch (const Error& error) {
      const bool good = error.code() == Code::kStorage && error.message().find("are free") != std::string::npos;
      ::_exit(good ? 0 : 2);
    }
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_text(folder / "x"), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, TakesAnotherTemporaryName_WhereAKilledProcessOfItsIdLeftOne) {
  TemporaryFolder folder;
  const std::string next = temporary_name(folder / "x").string();
  const size_t count = next.rfind('.') + 1;
  const int first = std::stoi(next.substr(count)) + 1;
  for (int i = 0; i < 3; ++i) {
    const fs::path left = next.substr(0, count) + std::to_string(first + i);
    if (i == 0) fs::create_symlink(folder / "victim", left);
    if (i > 0) write_text(left, "half");
  }
  write_file_atomically(folder / "x", "new");
  EXPECT_EQ(read_text(folder / "x"), "new");
  EXPECT_FALSE(fs::exists(folder / "victim"));
}

TEST(AtomicFile, NamesTheFolderThatIsNotThere) {
  TemporaryFolder folder;
  EXPECT_ERROR(AtomicFile(folder / "no" / "x"), Code::kStorage, "no/x", "No such file");
  make_folders(folder / "a" / "b" / "c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a" / "b" / "c"));
  write_text(folder / "file", "");
  EXPECT_ERROR(make_folders(folder / "file" / "d"), Code::kStorage, "file");
}

}  // namespace
}  // namespace herd
