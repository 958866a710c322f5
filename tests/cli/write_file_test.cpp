#include "herd/cli/write_file.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::cli {
namespace {

TEST(WriteFile, ReplacesWhatStoodThereAndSaysSo) {
  TemporaryFolder folder;
  write_text(folder / "page.html", "old");
  testing::internal::CaptureStdout();
  write_file(folder / "page.html", "new");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "wrote " + (folder / "page.html").string() + "\n");
  EXPECT_EQ(read_text(folder / "page.html"), "new");
}

TEST(WriteFile, LeavesTheOldOneWhereTheNewOneDoesNotFit) {
  TemporaryFolder folder;
  write_text(folder / "tuning", "old");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto on_signal = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_ERROR(write_file(folder / "tuning", std::string(1000, 'x')), Code::kStorage, "tuning");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, on_signal);
  EXPECT_EQ(read_text(folder / "tuning"), "old");
}

TEST(WriteFile, WritesToADeviceAsItIs) {
  write_file("/dev/null", "nothing", stderr);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace herd::cli
