#include "herd/base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace herd {
namespace {

TEST(Log, SaysTheRankAndLeavesOutLevelsBelowTheChosenOne) {
  std::string said;
  set_log_output([&](const std::string& line) { said += line; });
  set_log_rank(3);
  set_log_level(LogLevel::kWarning);
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  log_info("not this");
  log_warning("but this\nand this");
  set_log_level(LogLevel::kInfo);
  set_log_rank(-1);
  log_info("from nobody");
  set_log_output(nullptr);
  EXPECT_EQ(said.find("not this"), said.npos) << said;
  EXPECT_NE(said.find("[rank 3] but this\n"), said.npos) << said;
  EXPECT_NE(said.find(" from nobody\n"), said.npos) << said;
  EXPECT_EQ(said.find("[rank -1]"), said.npos) << said;
}

}  // namespace
}  // namespace herd
