#include "herd/spec/parameter_group_shape.h"

#include <gtest/gtest.h>

namespace herd::spec {
namespace {

// A whole norm of 5, and a 10 x 3 matrix cut by rows: 6 of its own and 4 that two neighbours share.
const ParameterGroupShape kGroup = {
    .name = "h.0",
    .parameters = {{.name = "norm", .sizes = {5}},
                   {.name = "matrix", .sizes = {10, 3}, .cut_dim = 0, .sections = {{6, 1}, {4, 2}}}}};

TEST(ParameterGroupShape, CountsTheElementsOfWholeParameters) { EXPECT_EQ(kGroup.elements(), 5 + 10 * 3); }

TEST(ParameterGroupShape, CountsTheMostElementsThatARankHolds) {
  EXPECT_EQ(kGroup.elements_of_rank(2), 5 + (3 + 4) * 3);
  EXPECT_EQ(kGroup.elements_of_rank(4), 5 + (2 + 2) * 3) << "6 rows among 4 ranks: one or two each";
}

TEST(ParameterGroupShape, CountsTheMostCopiesOfASegment) {
  EXPECT_EQ(kGroup.max_copies(), 2);
  const ParameterGroupShape whole = {.name = "head", .parameters = {{.name = "norm", .sizes = {5}}}};
  EXPECT_EQ(whole.max_copies(), 1);
}

}  // namespace
}  // namespace herd::spec
