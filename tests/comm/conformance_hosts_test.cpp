#include <gtest/gtest.h>

#include <string>

#include "herd/comm/fork_world.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/conformance.h"

namespace herd::testing_support {
namespace {

// Ranks as hosts of their own, and hosts that share memory inside.
class ConformanceUcx : public BetweenHosts, public testing::WithParamInterface<std::vector<int>> {};
using ConformanceUcxRandom = BetweenHosts;

TEST_P(ConformanceUcx, EveryPairOfParameters) {
  const auto n = static_cast<int>(GetParam().size());
  const auto cases = conformance_cases(n, full_tests() ? Cover::kFull : Cover::kPairwise, {.hosts = GetParam()});
  RecordProperty("cases", static_cast<int>(cases.size()));
  run_forked(
      n, [&](Communicator& world) { run_conformance(world, cases); }, testing_support::on_hosts(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Hosts, ConformanceUcx,
                         testing::Values(std::vector{0, 1}, std::vector{0, 1, 2}, std::vector{0, 0, 1},
                                         std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1}),
                         [](const auto& one) {
                           std::string name = "are";
                           for (const int host : one.param) name += "_" + std::to_string(host);
                           return name;
                         });

TEST_F(ConformanceUcxRandom, ThousandsOfOperations) {
  const int count = full_tests() ? 10000 : 1000;
  run_forked(
      4, [&](Communicator& world) { run_random_operations(world, 3, count, false); },
      testing_support::on_hosts({0, 0, 1, 1}));
}

}  // namespace
}  // namespace herd::testing_support
