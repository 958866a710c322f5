#include "herd/planner/search_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace herd::planner {
namespace {

using testing::ElementsAre;

TEST(SearchLimit, ReportsEachUnit_AndAllowsAllWithinTheTime) {
  std::vector<std::string> reports;
  SearchLimit limit(1000, [&](const std::string& doing) { reports.push_back(doing); });
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(limit.allows("programs", i, 3));
  EXPECT_THAT(reports, ElementsAre("programs, 1 of 3", "programs, 2 of 3", "programs, 3 of 3"));
  EXPECT_TRUE(limit.left_out().empty());
}

TEST(SearchLimit, NotesOnceWhatIsLeftOut_AfterTheFirstUnit) {
  SearchLimit limit(0, nullptr);
  EXPECT_TRUE(limit.allows("programs", 0, 12)) << "a search without one result has no best so far";
  for (size_t i = 1; i < 12; ++i) EXPECT_FALSE(limit.allows("programs", i, 12));
  EXPECT_TRUE(limit.allows("layouts", 0, 2));
  EXPECT_FALSE(limit.allows("layouts", 1, 2));
  limit.leave_out("more than 64 ranks");
  EXPECT_THAT(limit.left_out(), ElementsAre("programs: 11 of 12", "layouts: 1 of 2", "more than 64 ranks"));
}

TEST(SearchLimit, AllowsNothingPastTheTime_OnceThereIsAResult) {
  SearchLimit limit(0, nullptr);
  EXPECT_TRUE(limit.allows("programs", 0, 12));
  limit.has_result();
  EXPECT_FALSE(limit.allows("layouts", 0, 2));
  limit.leave_out("values of strategy.prefetch");
  limit.leave_out("values of strategy.prefetch");
  EXPECT_THAT(limit.left_out(), ElementsAre("layouts: 2 of 2", "values of strategy.prefetch"));
}

TEST(SearchLimit, KeepsTimeForWhatFollows) {
  SearchLimit limit(1000, nullptr);
  limit.allow_until(0);
  EXPECT_FALSE(limit.allows("programs", 1, 2));
  limit.allow_until(1);
  EXPECT_TRUE(limit.allows("layouts", 1, 2));
}

}  // namespace
}  // namespace herd::planner
