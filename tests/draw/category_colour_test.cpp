#include "herd/draw/category_colour.h"

#include <gtest/gtest.h>

#include <set>

#include "herd/draw/svg.h"

namespace herd::draw {
namespace {

TEST(CategoryColour, DiffersForOpsThatStandSideBySide) {
  std::set<int> colours;
  const char* ops[] = {"forward", "backward",   "backward_weight", "recompute", "loss",  "all_gather", "reduce_scatter",
                       "send",    "all_reduce", "receive",         "step",      "fetch", "evict",      "encode"};
  for (const char* op : ops) EXPECT_TRUE(colours.insert(category_colour(op)).second) << op;
}

TEST(CategoryColour, FollowsFromTheNameOfAnyOther) {
  EXPECT_EQ(category_colour("unheard of"), category_colour("unheard of"));
  for (const char* name : {"", "push", "pull"}) {
    EXPECT_GE(category_colour(name), 0);
    EXPECT_LT(category_colour(name), kColours);
  }
}

}  // namespace
}  // namespace herd::draw
