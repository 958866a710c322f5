#include "herd/base/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

TEST(RegularFile, IsReadToItsEnd_OrAsFarAsAskedFor) {
  const TemporaryFolder folder;
  for (const size_t size : {0, 1, 65535, 65536, 65537, 200000}) {
    std::string text(size, 'a');
    if (size > 0) text.back() = 'z';
    write_text(folder / "file", text);
    EXPECT_EQ(read_regular_file(folder / "file"), text);
    for (const size_t most : {size_t{0}, size / 2, size, size + 1})
      EXPECT_EQ(read_regular_file(folder / "file", most), text.substr(0, most)) << size << " " << most;
  }
}

TEST(RegularFile, IsReadThroughALink) {
  const TemporaryFolder folder;
  write_text(folder / "file", "text");
  std::filesystem::create_symlink("file", folder / "link");
  EXPECT_EQ(read_regular_file(folder / "link"), "text");
}

TEST(RegularFile, IsNothingElse_AndNothingElseBlocks) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", folder / "link");
  for (const std::filesystem::path& path :
       {folder / "fifo", folder / "none", folder / "link", folder.path(), std::filesystem::path("/dev/zero")})
    EXPECT_FALSE(read_regular_file(path)) << path;
}

TEST(RegularFile, IsOpenedWithoutWaiting_OrSaysWhatIsThere) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  write_text(folder / "file", "text");
  EXPECT_GE(open_regular_file(folder / "file").fd, 0);
  EXPECT_ERROR(open_regular_file(folder / "fifo"), Code::kStorage, "fifo, which must be a file: it is a FIFO",
               "fix: a regular file");
  EXPECT_ERROR(open_regular_file("/dev/zero"), Code::kStorage, "/dev/zero, which must be a file", "or a device");
  EXPECT_ERROR(open_regular_file(folder.path()), Code::kStorage, "which must be a file: Is a directory", "fix:");
  EXPECT_ERROR(open_regular_file(folder / "none"), Code::kStorage, "none: No such file or directory", "fix:");
}

}  // namespace
}  // namespace herd
