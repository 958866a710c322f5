#include "herd/launch/rank_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

// Files of this process take at most so many bytes, as on a disk that is full then.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class RankLogTest : public testing::Test {
 protected:
  std::string file() const { return (folder_.path() / "rank0.log").string(); }
  int opened() const { return open(file().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644); }
  std::string text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(RankLogTest, HoldsAllOnceThereIsRoom_InItsOrder) {
  RankLog log(opened());
  std::string printed;
  const auto print = [&](int i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    printed += line;
    log.append(line);
  };
  for (int i = 0; i < 10; ++i) print(i);
  EXPECT_EQ(log.failure(), 0);
  {
    const FileLimit full(100);  // in the middle of a line
    for (int i = 10; i < 1000; ++i) print(i);
    EXPECT_EQ(log.failure(), EFBIG);
    EXPECT_EQ(text(), printed.substr(0, 100));
  }
  print(1000);
  EXPECT_EQ(log.failure(), 0);
  EXPECT_EQ(text(), printed);
  EXPECT_EQ(log.finish(), 0);
}

TEST_F(RankLogTest, SaysWhyItLacksLines_WhereTheDiskStaysFullOrTooMuchWaited) {
  const std::string much(RankLog::kMaxWaitingBytes / 2 + 1, 'a');
  RankLog log(opened());
  {
    const FileLimit full(100);
    log.append(much);
    EXPECT_EQ(log.finish(), EFBIG);
    log.append(much);
    log.append(much);
  }
  EXPECT_EQ(log.finish(), EFBIG) << "what was left out stays missing";
  EXPECT_EQ(text().size(), 100 + RankLog::kMaxWaitingBytes);
}

TEST_F(RankLogTest, KeepsNothingWithoutAFile) {
  RankLog log(-1);
  log.append("line\n");
  EXPECT_EQ(log.finish(), 0);
}

}  // namespace
}  // namespace herd::launch
