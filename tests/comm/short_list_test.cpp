#include "herd/comm/short_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace herd::comm {
namespace {

TEST(ShortList, HoldsAllNumbers_WhereThereIsRoom) {
  EXPECT_EQ(short_list({}, 20), "");
  EXPECT_EQ(short_list(std::vector<int64_t>{3, 5, -8}, 6), "3 5 -8");
}

TEST(ShortList, EndsWithAHashOfAll_WhereItIsCut) {
  std::vector<int64_t> numbers = {3, 5, 1234567, 890};
  const std::string cut = short_list(numbers, 14);
  EXPECT_EQ(cut.substr(0, 6), "3 .. #");
  EXPECT_EQ(cut.size(), 14u);
  numbers.back() = 891;
  EXPECT_NE(short_list(numbers, 14), cut) << "the last number shows in the hash alone";
  EXPECT_EQ(short_list(std::vector<int64_t>{1234567890123456789}, 13).substr(0, 1), "#");
}

}  // namespace
}  // namespace herd::comm
