#include "herd/base/check.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

TEST(Check, SaysNothing_WhereItHolds) {
  HERD_CHECK(true, "never read");
  HERD_CHECK_LE(2, 2);
}

TEST(Check, IsABug_ThatNamesFileConditionAndOperands) {
  const int held = 3;
  EXPECT_ERROR(HERD_CHECK_EQ(held, 4), Code::kBug, "check_test.cpp:", "held == 4: 3 vs 4");
  EXPECT_ERROR(HERD_CHECK(held < 2, "too many"), Code::kBug, "held < 2: too many");
}

}  // namespace
}  // namespace herd
