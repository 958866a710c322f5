#include <gtest/gtest.h>

#include "herd/schedule/verify_schedule.h"
#include "tests/collectives/all_algorithms.h"

namespace herd::testing_support {
namespace {

void expect_verified(const AlgorithmInfo& info, const CollectiveRequest& request) {
  if (!serves(info, request)) return;
  const auto findings = verify(build_all_ranks(info.name, request));
  EXPECT_TRUE(findings.empty()) << title(info, request) << "\n  " << describe(findings[0]);
}

class EverySchedule : public testing::TestWithParam<int> {};

TEST_P(EverySchedule, Verifies_ForAwkwardCountsInPlaceAndNot) {
  const int n = GetParam();
  const std::vector<int64_t> counts = {0, 1, n - 1, n, n + 1, 1000, 65537};
  for (const AlgorithmInfo& info : every_algorithm()) {
    for (const int64_t elements : counts) {
      for (const bool in_place : {false, true}) {
        CollectiveRequest request{
            .collective = info.collective, .num_ranks = n, .elements = elements, .in_place = in_place};
        expect_verified(info, request);
        request.root = n - 1;
        if (has_root(info.collective) && n > 1) expect_verified(info, request);
      }
    }
  }
}

TEST_P(EverySchedule, Verifies_ForUnevenPartsInPlaceAndNot) {
  const int n = GetParam();
  for (const AlgorithmInfo& info : every_algorithm()) {
    if (!has_counts(info.collective)) continue;
    for (const bool in_place : {false, true}) {
      expect_verified(info,
                      uneven({.collective = info.collective, .num_ranks = n, .root = n / 2, .in_place = in_place}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EverySchedule, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

}  // namespace
}  // namespace herd::testing_support
