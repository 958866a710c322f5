#include "herd/storage/small_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

int mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0);
  return static_cast<int>(info.st_mode & 0777);
}

TEST(SmallFile, KeepsBytesAndPermissions_AlsoOfAFileThatIsLinkedTo) {
  const mode_t before = ::umask(022);
  TemporaryFolder folder;
  for (const int mode : {0600, 0640, 0400, 0644, 0755}) {
    const fs::path source = folder / std::to_string(mode), copy = folder / (std::to_string(mode) + ".copy");
    write_text(source, "tokens");
    ::chmod(source.c_str(), static_cast<mode_t>(mode));
    fs::create_symlink(source, folder / (std::to_string(mode) + ".link"));
    write_small_file(copy, read_small_file(folder / (std::to_string(mode) + ".link")));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(copy)));
    EXPECT_EQ(read_text(copy), "tokens");
    EXPECT_EQ(mode_of(copy), mode);
    write_small_file(copy, {"others", 0600});
    EXPECT_EQ(mode_of(copy), 0600) << "a file that is replaced does not lend its permissions";
  }
  ::umask(before);
}

TEST(SmallFile, IsNotOpenToMoreUsersThanTheUmaskAllows) {
  const mode_t before = ::umask(077);
  TemporaryFolder folder;
  write_small_file(folder / "copy", {"tokens", 0664});
  EXPECT_EQ(mode_of(folder / "copy"), 0600);
  ::umask(before);
}

TEST(SmallFile, SaysWhatCanNotBeRead) {
  TemporaryFolder folder;
  EXPECT_ERROR(read_small_file(folder / "absent"), Code::kStorage, "absent", "No such file");
}

}  // namespace
}  // namespace herd
