#include "herd/planner/suggestions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace herd::planner {
namespace {

std::string path(const std::string& name) {
  return std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" + name + ".toml";
}

TEST(Suggestions, FitTheBudget_AndAreWhatTheirChangesGive) {
  const spec::RunFile run = spec::parse_run_file(path("gpt-162m"));
  const Cluster cluster = small_server(2);
  const Search search{.budget = {.device = int64_t{2} << 30}};
  const auto suggestions = suggest_changes(run, 2, cluster, search);
  ASSERT_FALSE(suggestions.empty());
  for (const Suggestion& suggestion : suggestions) {
    EXPECT_TRUE(search.budget.holds(suggestion.prediction));
    EXPECT_EQ(suggestion.ranks, 2);
    const spec::RunFile changed = spec::parse_run_file(path("gpt-162m"), suggestion.changes);
    CollectiveCostModel::LineCache memory;
    const Prediction again = predict_by_equations(changed, 2, cluster, memory);
    EXPECT_EQ(again.device_bound, suggestion.prediction.device_bound);
    EXPECT_EQ(again.step_us, suggestion.prediction.step_us);
  }
  EXPECT_TRUE(std::is_sorted(suggestions.begin(), suggestions.end(), [](const Suggestion& a, const Suggestion& b) {
    return a.prediction.step_us * a.ranks < b.prediction.step_us * b.ranks;
  }));
}

// Equations know no compression.
TEST(Suggestions, AreNotScaled_WhereTheRunHasNoEquations) {
  spec::RunFile run;
  run.train.batch = 4;
  run.strategy.compression = "bf16";
  const Cluster cluster = small_server(2);
  EXPECT_EQ(time_scale(run, 2, cluster, predict(run, 2, cluster)), 1);
  run.strategy.compression = "none";
  EXPECT_NE(time_scale(run, 2, cluster, predict(run, 2, cluster)), 1);
}

TEST(Suggestions, AskForMoreRanks_OnlyWhereTheyMay) {
  const spec::RunFile run = spec::parse_run_file(path("llama2-70b"));
  Cluster cluster = small_server(16);
  cluster.topology.hosts[0].ranks = 8;
  cluster.device.has_own_device = true;
  cluster.device.bytes_per_us = 2e6;
  Search search{.budget = {.device = 80000000000, .host = int64_t{100} << 30}};
  EXPECT_TRUE(suggest_changes(run, 2, cluster, search).empty());
  search.more_ranks = true;
  const auto suggestions = suggest_changes(run, 2, cluster, search);
  ASSERT_FALSE(suggestions.empty());
  EXPECT_GT(suggestions[0].ranks, 2);
  EXPECT_TRUE(suggestions[0].unsupported.empty());
}

}  // namespace
}  // namespace herd::planner
