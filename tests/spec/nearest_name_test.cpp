#include "herd/spec/nearest_name.h"

#include <gtest/gtest.h>

namespace herd::spec {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("batch", "batch"), 0);
  EXPECT_EQ(edit_distance("batch", "bath"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("bacth", "batch"), 1);
}

TEST(NearestName, IsTheClosestAndTheFirstOfEquals) {
  const std::vector<std::string> names = {"steps", "batch", "micro_batch"};
  EXPECT_EQ(nearest_name("microbatch", names), "micro_batch");
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'x'), names), "steps");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace herd::spec
