#include "herd/launch/status.h"

#include <gtest/gtest.h>

namespace herd::launch {
namespace {

TEST(FirstDivergence, NamesRanksThatAreBehind) {
  EXPECT_EQ(first_divergence({{0, 12, "all_reduce b"}, {1, 11, "all_reduce a"}, {2, 12, "all_reduce b"}}),
            "furthest behind: rank 1 in \"all_reduce a\" (operation 11), while ranks 0, 2 reached \"all_reduce b\" "
            "(operation 12)");
}

TEST(FirstDivergence, NamesProgramsThatDiffer) {
  EXPECT_EQ(
      first_divergence({{0, 5, "all_reduce a"}, {1, 5, "barrier"}, {2, 6, "broadcast"}}),
      "first divergence at operation 5: rank 0 in \"all_reduce a\"; rank 1 in \"barrier\" - their programs differ");
}

TEST(FirstDivergence, IsEmptyWhereRanksAgreeOrNothingIsKnown) {
  EXPECT_EQ(first_divergence({{0, 5, "a"}, {1, 5, "a"}, {2, -1, ""}}), "");
  EXPECT_EQ(first_divergence({}), "");
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
