// What a FileSystem of a folder refuses: links below the folder, and paths that leave it.
#include "herd/storage/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "herd/base/descriptor.h"
#include "herd/storage/file_kind.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

// outside/secret and outside/inner, and a folder run with links to them.
struct Folders {
  TemporaryFolder root;
  fs::path outside = root / "outside", run = root / "run";
  Folders() {
    fs::create_directories(outside / "inner");
    fs::create_directories(run / "sub");
    write_text(outside / "secret", "old");
    write_text(run / "file", "x");
    fs::create_symlink(outside / "secret", run / "to_file");
    fs::create_directory_symlink(outside, run / "to_folder");
    fs::create_directory_symlink("sub", run / "to_sub");
  }
};

TEST(FileSystem, OfAFolderChangesNothingThroughALink) {
  Folders at;
  FileSystem files(at.run);
  for (const char* link : {"to_folder", "to_sub"}) {
    EXPECT_EQ(files.create(at.run / link / "new", kFilePermissions), -ELOOP);
    EXPECT_EQ(files.make_folder(at.run / link / "new"), -ELOOP);
    EXPECT_EQ(files.remove(at.run / link / "inner"), -ELOOP);
    EXPECT_EQ(files.rename(at.run / "file", at.run / link / "moved"), -ELOOP);
    EXPECT_EQ(files.rename(at.run / link / "secret", at.run / "moved"), -ELOOP);
    EXPECT_EQ(files.link(at.run / link / "secret", at.run / "linked"), -ELOOP);
    EXPECT_EQ(files.exchange(at.run / link / "secret", at.run / "file"), -ELOOP);
    EXPECT_EQ(files.sync_folder(at.run / link), -ELOOP);
    EXPECT_EQ(files.open(at.run / link / "secret", O_RDONLY), -ELOOP);
    EXPECT_EQ(files.make_folder(at.run / link), -EEXIST);
    std::vector<std::string> names;
    EXPECT_EQ(files.list(at.run / link, names), -ELOOP);
    EXPECT_EQ(kind_of(at.run / link, files), FileKind::kOther);
  }
  EXPECT_EQ(files.open(at.run / "to_file", O_RDWR | O_CREAT), -ELOOP);
  EXPECT_EQ(files.create(at.run / "to_file", kFilePermissions), -EEXIST);
  EXPECT_EQ(files.rename(at.run / "file", at.run / "to_file"), 0) << "replaces the link itself";
  EXPECT_EQ(files.remove(at.run / "to_folder"), 0) << "removes the link itself";
  EXPECT_EQ(read_text(at.outside / "secret"), "old");
  EXPECT_EQ(entries_of(at.outside).size(), 2u);
}

TEST(FileSystem, OfAFolderServesWhatIsBelowIt_ThoughItsOwnPathIsALink) {
  Folders at;
  fs::create_directory_symlink(at.run, at.root / "named");
  for (const fs::path& folder : {at.run, at.root / "named", at.root / "named/", at.root / "./named"}) {
    FileSystem files(folder);
    const fs::path sub = folder / "sub";
    files.close(files.create(sub / "a", kFilePermissions));
    EXPECT_EQ(files.make_folder(sub / "b"), 0);
    EXPECT_EQ(files.make_folder(sub / "b"), -EEXIST);
    EXPECT_EQ(files.rename(sub / "a", folder / "c"), 0);
    EXPECT_EQ(files.sync_folder(folder), 0);
    EXPECT_EQ(files.remove(sub / "b"), 0);
    EXPECT_EQ(entries_of(sub, files).size(), 0u);
    EXPECT_TRUE(is_folder(folder, files));
    EXPECT_TRUE(is_file(folder / "c", files));
    EXPECT_TRUE(is_link(folder / "to_sub", files));
    EXPECT_GE(Descriptor(files.open(folder / "c", O_RDONLY)).fd, 0);
    EXPECT_EQ(files.remove(folder / "c"), 0);
  }
}

TEST(FileSystem, OfAFolderServesNoPathOutsideIt) {
  Folders at;
  FileSystem files(at.run);
  for (const fs::path& path : {at.outside / "secret", at.run / ".." / "outside/secret", at.run / "sub/../file",
                               at.root / "runner", at.root.path(), fs::path("run/file")}) {
    EXPECT_EQ(files.create(path, kFilePermissions), -EXDEV) << path;
    EXPECT_EQ(files.remove(path), -EXDEV) << path;
    EXPECT_EQ(files.open(path, O_RDONLY), -EXDEV) << path;
    EXPECT_EQ(files.rename(at.run / "file", path), -EXDEV) << path;
  }
  EXPECT_EQ(FileSystem(".").open("/etc/passwd", O_RDONLY), -EXDEV);
  EXPECT_EQ(FileSystem("").open("no such file", O_RDONLY), -ENOENT) << "the working folder";
}

TEST(FileSystem, OpensRegularFilesAlone_AndWaitsForNone) {
  Folders at;
  ASSERT_EQ(::mkfifo((at.run / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", at.run / "to_pipe");
  for (FileSystem files : {FileSystem(), FileSystem(at.run)}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR | O_CREAT}) {
      EXPECT_EQ(files.open(at.run / "pipe", flags), -EINVAL);
      EXPECT_EQ(files.open(at.run / "sub", flags), -EISDIR);
    }
  }
  EXPECT_EQ(FileSystem().open(at.run / "to_pipe", O_RDONLY), -EINVAL);
  EXPECT_EQ(FileSystem().open("/dev/null", O_RDONLY), -EINVAL);
}

}  // namespace
}  // namespace herd
