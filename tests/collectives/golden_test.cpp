// The steps of every algorithm for 3 ranks (compositions: 4 or 8), as reviewed text. HERD_UPDATE_GOLDEN=1 rewrites the
// files.
#include <gtest/gtest.h>

#include "herd/schedule/schedule_text.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/golden.h"

namespace herd::testing_support {
namespace {

class Golden : public testing::TestWithParam<AlgorithmInfo> {};

TEST_P(Golden, StepsAreTheReviewedOnes) {
  const AlgorithmInfo& info = GetParam();
  std::string text;
  CollectiveRequest request{.collective = info.collective, .num_ranks = 3, .root = 1, .elements = 7};
  if (is_composition(info)) request = composition_request(info);
  for (const Schedule& s : build_all_ranks(info.name, request)) {
    text += to_text(s) + "\n";
    EXPECT_EQ(parse_schedule(to_text(s)), s);
  }
  const std::string name = std::string(collective_name(info.collective)) + "_" + std::string(info.name);
  expect_golden("tests/collectives/golden/" + name + "_" + std::to_string(request.num_ranks) + ".txt", text);
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(every_algorithm()), [](const auto& one) {
  return std::string(collective_name(one.param.collective)) + "_" + std::string(one.param.name);
});

}  // namespace
}  // namespace herd::testing_support
