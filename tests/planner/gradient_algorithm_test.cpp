#include "herd/planner/gradient_algorithm.h"

#include <gtest/gtest.h>

#include "herd/strategies/techniques.h"
#include "herd/topology/presets.h"
#include "tests/support/expect_error.h"

namespace herd::planner {
namespace {

spec::RunFile run_by(const std::string& algorithm, const std::string& mesh = "") {
  return spec::parse_run_text("[comm]\nalgorithm = \"" + algorithm + "\"\n[mesh]\n" + mesh, "test");
}

void check(const spec::RunFile& run, int ranks, const std::optional<Topology>& machines) {
  check_gradient_algorithm(run, strategies::trainable_layout(run, ranks), machines);
}

TEST(GradientAlgorithm, MustBeOneThatThereIs_OnOneRankToo) {
  for (const int ranks : {1, 2}) {
    EXPECT_ERROR(check(run_by("rign"), ranks, one_host(ranks, 2)), Code::kBadConfig,
                 "comm.algorithm = \"rign\": all_reduce has no algorithm of this name\n  fix: one of auto, ring, ");
    EXPECT_ERROR(check(run_by("rign"), ranks, std::nullopt), Code::kBadConfig, "rign");
    for (const char* known : {"auto", "ring", "direct_push", "staged"}) check(run_by(known), ranks, one_host(ranks, 2));
    for (const char* alias : {"butterfly", "path"}) check(run_by(alias), ranks, *preset("hosts:1x2"));
  }
}

TEST(GradientAlgorithm, MustServeTheRanksThatSumGradients) {
  check(run_by("torus_2d"), 4, torus_network({2, 2}, {}));
  EXPECT_ERROR(check(run_by("torus_2d"), 4, one_host(4, 2)), Code::kBadConfig, "comm.algorithm = \"torus_2d\" needs");
  EXPECT_ERROR(check(run_by("hierarchical_tree"), 4, one_host(4, 2)), Code::kBadConfig,
               "needs several hosts of several ranks, but gradients are summed by 4 ranks on \"one host, 2 cores\"");
  // Two stages of two replicas on a grid: each pair is one of its columns.
  EXPECT_ERROR(check(run_by("torus_2d", "pp = 2\n"), 4, torus_network({2, 2}, {})), Code::kBadConfig,
               "summed by 2 ranks");
  EXPECT_ERROR(check(run_by("direct_pull"), 4, *preset("hosts:2x2")), Code::kBadConfig, "needs buffers in symmetric");
  check(run_by("hierarchical_tree"), 4, *preset("hosts:2x2"));
  check(run_by("torus_2d"), 4, std::nullopt);    // nobody knows yet
  check(run_by("torus_2d"), 1, one_host(1, 1));  // which sums nothing
}

TEST(GradientAlgorithm, IsRefused_WhereNoRankAllReducesGradients) {
  for (const char* zero : {"1", "2", "3"}) {
    spec::RunFile run = run_by("ring");
    run.strategy.zero = zero[0] - '0';
    EXPECT_ERROR(
        check(run, 4, one_host(4, 2)), Code::kBadConfig,
        "comm.algorithm = \"ring\" is of the gradient all-reduce, but strategy.zero = " + std::string(zero) +
            " sums gradients by reduce-scatters alone\n  fix: comm.algorithm = \"auto\", or strategy.zero = 0");
    check(run, 1, one_host(1, 2));
    run.mesh.fsdp = 2;  // whose shards have copies: those are all-reduced, by two ranks
    check(run, 4, one_host(4, 2));
    run.comm.algorithm = "torus_2d";
    EXPECT_ERROR(check(run, 4, torus_network({2, 2}, {})), Code::kBadConfig, "summed by 2 ranks");
  }
}

}  // namespace
}  // namespace herd::planner
