#include <gmock/gmock.h>

#include "herd/sim/fair_share_internal.h"

namespace herd::sim {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

std::vector<double> speeds(const std::vector<std::vector<Use>>& tasks, const std::vector<double>& capacities) {
  std::vector<const std::vector<Use>*> uses;
  for (const std::vector<Use>& task : tasks) uses.push_back(&task);
  return fair_speeds(uses, capacities);
}

TEST(FairShare, LetsTasksRunAtFullSpeed_WhereNothingIsFull) {
  EXPECT_THAT(speeds({{{0, 2}}, {{0, 3}}, {}}, {10}), ElementsAre(1, 1, 1));
}

TEST(FairShare, GivesTasksOfAFullResourceOneSpeed_WhateverTheyAskFor) {
  EXPECT_THAT(speeds({{{0, 4}}, {{0, 12}}}, {8}), ElementsAre(DoubleEq(0.5), DoubleEq(0.5)));
}

TEST(FairShare, LetsOthersTakeWhatThoseOfAFullResourceLeave) {
  // Resource 0 is full at 1/4 for tasks a and b; c then has 8 - 1/4 * 8 = 6 of the 8 of resource 1 to itself.
  EXPECT_THAT(speeds({{{0, 8}, {1, 8}}, {{0, 8}}, {{1, 8}}}, {4, 8}),
              ElementsAre(DoubleEq(0.25), DoubleEq(0.25), DoubleEq(0.75)));
}

}  // namespace
}  // namespace herd::sim
