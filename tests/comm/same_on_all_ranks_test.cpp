#include "herd/comm/same_on_all_ranks.h"

#include <gtest/gtest.h>

#include <atomic>

#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"

namespace herd::comm {
namespace {

TEST(SameOnAllRanks, IsSilentWhereTheyAgree) {
  run_inproc(3, [](Communicator& comm) {
    check_same_on_all_ranks(comm, "line", {"a", "b"}, "none");
    check_same_on_all_ranks(comm, "line", {}, "none");
  });
}

void expect_difference(const std::vector<std::vector<std::string>>& lines, const std::string& words) {
  std::atomic<int> told = 0;
  run_inproc(static_cast<int>(lines.size()), [&](Communicator& comm) {
    try {
      check_same_on_all_ranks(comm, "parameter", lines[static_cast<size_t>(comm.rank())], "say the same");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_NE(error.message().find(words), std::string::npos) << error.what();
      ++told;
    }
  });
  EXPECT_EQ(told, static_cast<int>(lines.size())) << "every rank tells it";
}

TEST(SameOnAllRanks, NamesTheFirstDifferenceAndBothRanks) {
  expect_difference({{"a [1]", "b [2]", "c"}, {"a [1]", "b [2]", "c"}, {"a [1]", "b [3]", "d"}},
                    "parameter 1: rank 0 has \"b [2]\", rank 2 has \"b [3]\"");
}

TEST(SameOnAllRanks, SaysThatARankHasFewer) {
  expect_difference({{"a", "b"}, {"a"}}, "parameter 1: rank 0 has \"b\", rank 1 has no more than 1");
}

}  // namespace
}  // namespace herd::comm
