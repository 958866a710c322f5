#include "herd/launch/status.h"

#include <gtest/gtest.h>

namespace herd::launch {
namespace {

using namespace std::chrono_literals;

constexpr SteadyTime kStart{1h};

TEST(FirstDivergence, NamesRanksThatAreBehind) {
  const SteadyTime since = kStart, heard = kStart + 1s;
  EXPECT_EQ(first_divergence({{0, 12, "all_reduce b", since, heard},
                              {1, 11, "all_reduce a", since, heard},
                              {2, 12, "all_reduce b", since, heard}},
                             heard),
            "furthest behind: rank 1 in \"all_reduce a\" (operation 11), while ranks 0, 2 reached \"all_reduce b\" "
            "(operation 12)");
}

TEST(FirstDivergence, NamesProgramsThatDiffer) {
  EXPECT_EQ(
      first_divergence({{0, 5, "all_reduce a"}, {1, 5, "barrier"}, {2, 6, "broadcast"}}, kStart),
      "first divergence at operation 5: rank 0 in \"all_reduce a\"; rank 1 in \"barrier\" - their programs differ");
}

TEST(FirstDivergence, IsEmptyWhereRanksAgreeOrNothingIsKnown) {
  EXPECT_EQ(first_divergence({{0, 5, "a"}, {1, 5, "a"}, {2, -1, ""}}, kStart), "");
  EXPECT_EQ(first_divergence({}, kStart), "");
}

TEST(FirstDivergence, NamesNobodyWhoseStatusIsOlderThanThatOfThoseAhead_UnlessItFellSilent) {
  const std::vector<Status> ranks = {{0, 1, "broadcast", kStart, kStart + 100ms},
                                     {1, 8, "all_reduce", kStart + 190ms, kStart + 190ms}};
  EXPECT_EQ(first_divergence(ranks, kStart + 200ms), "");
  EXPECT_EQ(
      first_divergence(ranks, kStart + 2s),
      "furthest behind: rank 0 in \"broadcast\" (operation 1), while rank 1 reached \"all_reduce\" (operation 8)");
}

TEST(Status, SurvivesAMemoryStore) {
  MemoryStore store;
  EXPECT_FALSE(read_status(store, 2));
  publish_status(store, 2, "step 7 forward block3", 41);
  const auto status = read_status(store, 2);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->rank, 2);
  EXPECT_EQ(status->sequence, 41);
  EXPECT_EQ(status->text, "step 7 forward block3");
}

}  // namespace
}  // namespace herd::launch
