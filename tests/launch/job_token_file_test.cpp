#include "herd/launch/job_token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

TEST(TokenFile, IsReadByItsFirstWord) {
  TemporaryFolder folder;
  std::ofstream(folder / "token") << "  0123456789abcdef\nmore";
  chmod((folder / "token").c_str(), 0600);
  EXPECT_EQ(read_token_file(folder / "token"), "0123456789abcdef");
}

TEST(TokenFile, IsRefusedWhereOthersCanReadOrWriteIt) {
  TemporaryFolder folder;
  std::ofstream(folder / "token") << "0123456789abcdef";
  for (const mode_t mode : {0644, 0640, 0620, 0602, 0604}) {
    chmod((folder / "token").c_str(), mode);
    EXPECT_ERROR(read_token_file(folder / "token"), Code::kBadConfig, "can be read or written by others",
                 "fix: chmod 600");
  }
  if (geteuid() != 0) return;  // only root can give a file away
  chmod((folder / "token").c_str(), 0600);
  ASSERT_EQ(chown((folder / "token").c_str(), 4242, 4242), 0);
  EXPECT_ERROR(read_token_file(folder / "token"), Code::kBadConfig, "belongs to user 4242", "fix:");
}

TEST(TokenFile, ThatIsEmptyOrMissingIsNamed) {
  TemporaryFolder folder;
  std::ofstream(folder / "empty") << "\n";
  chmod((folder / "empty").c_str(), 0600);
  EXPECT_ERROR(read_token_file(folder / "empty"), Code::kBadConfig, "holds no token", "fix:");
  EXPECT_ERROR(read_token_file(folder / "none"), Code::kBadConfig, "No such file", "fix:");
}

TEST(TokenFile, ThatIsMissingOrEmptyIsMadeByTheAdvice) {
  TemporaryFolder folder;
  std::ofstream(folder / "empty") << "\n";
  chmod((folder / "empty").c_str(), 0600);
  for (const char* name : {"none", "empty"}) {
    try {
      read_token_file(folder / name);
      FAIL() << name;
    } catch (const Error& error) {
      const std::string text = error.message();
      const size_t begin = text.find("fix: ") + 5, end = text.find(')', begin);
      ASSERT_LT(begin, end) << text;
      const std::string advice = text.substr(begin, end + 1 - begin);
      ASSERT_EQ(std::system(("umask 022; " + advice).c_str()), 0) << advice;
    }
    EXPECT_EQ(read_token_file(folder / name).size(), 64u);
  }
}

}  // namespace
}  // namespace herd::launch
