#include "herd/storage/file_kind.h"

#include <gtest/gtest.h>

#include "tests/support/as_nobody.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

TEST(FileKind, FollowsLinks_AndCallsNothingWhatIsNotThere) {
  TemporaryFolder folder;
  write_text(folder / "file", "x");
  fs::create_directory_symlink(folder.path(), folder / "link");
  fs::create_symlink(folder / "nowhere", folder / "dangling");
  EXPECT_EQ(kind_of(folder / "file"), FileKind::kFile);
  EXPECT_EQ(kind_of(folder / "link"), FileKind::kFolder);
  EXPECT_EQ(kind_of(folder / "dangling"), FileKind::kNothing);
  EXPECT_TRUE(is_taken(folder / "dangling"));
  EXPECT_FALSE(is_taken(folder / "nowhere"));
  EXPECT_EQ(kind_of(folder / "file/below"), FileKind::kNothing);
  EXPECT_EQ(kind_of("/dev/null"), FileKind::kOther);
  EXPECT_EQ(entries_of(folder.path()).size(), 3u);
  EXPECT_TRUE(entries_of(folder / "nowhere").empty());
  EXPECT_ERROR(entries_of(folder / "file"), Code::kStorage, "list the folder", "file: Not a directory", "fix:");
}

TEST(FileKind, WhatMayNotBeSeenIsAnError_WithAFix) {
  TemporaryFolder folder;
  fs::create_directories(folder / "closed/inner");
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder / "closed", fs::perms::none);
  {
    const AsNobody nobody;
    EXPECT_ERROR(entries_of(folder / "closed"), Code::kStorage, "closed: Permission denied", "fix: give this user");
    EXPECT_ERROR(is_folder(folder / "closed/inner"), Code::kStorage, "inner: Permission denied", "fix: give this user");
  }
  fs::permissions(folder / "closed", fs::perms::owner_all);
  fs::create_symlink("circle", folder / "circle");
  EXPECT_ERROR(entries_of(folder / "circle"), Code::kStorage, "symbolic links", "fix:");
}

}  // namespace
}  // namespace herd
