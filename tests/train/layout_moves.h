// Runs of herd train that change their layout between one start and the next.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/metrics.h"

namespace herd::train {

inline std::vector<StepMetrics> metrics_of(const fs::path& run) { return read_metrics(run / "metrics.jsonl"); }

inline std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

struct Layout {
  int ranks = 1;
  std::vector<std::string> overrides = {};
};

// Shares of what one rank has.
struct Tolerance {
  double losses = 2e-6, norms = 1e-5;
};

// Losses and norms of each step, and of the validation.
inline void expect_same(const std::vector<StepMetrics>& steps, const std::vector<StepMetrics>& expected,
                        const std::string& what, const Tolerance& within = {}) {
  ASSERT_EQ(steps.size(), expected.size()) << what;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].loss, expected[i].loss, within.losses * expected[i].loss) << what << " step " << i;
    EXPECT_NEAR(steps[i].grad_norm, expected[i].grad_norm, within.norms * expected[i].grad_norm)
        << what << " step " << i;
    EXPECT_EQ(steps[i].tokens, expected[i].tokens);
  }
  EXPECT_NEAR(*steps.back().val_loss, *expected.back().val_loss, within.losses * *expected.back().val_loss) << what;
}

// Steps of a run whose second half is trained again, and the keys for it; more of them with HERD_FULL_TESTS=1.
inline int steps_to_move() { return std::getenv("HERD_FULL_TESTS") != nullptr ? 20 : 8; }
inline std::vector<std::string> run_to_move(const std::vector<std::string>& more) {
  const std::string half = std::to_string(steps_to_move() / 2);
  return with({"train.steps=" + std::to_string(steps_to_move()), "train.eval_every=" + half, "checkpoint.every=" + half,
               "health.replica_hash_every=" + std::to_string(steps_to_move() / 4)},
              more);
}

// A run at one layout, and the second half of it again at another, from the checkpoint between. REQUIRES what
// run_to_move() asks for.
inline void expect_moves(RunFolder& folder, const std::string& name, const std::vector<std::string>& overrides,
                         const std::vector<StepMetrics>& expected, const std::pair<Layout, Layout>& move,
                         const Tolerance& within = {}) {
  const Ended first = folder.train(name, move.first.ranks, with(overrides, move.first.overrides));
  ASSERT_EQ(first.status, 0) << first.output;
  expect_same(metrics_of(folder.root / name), expected, name, within);
  fs::remove_all(folder.root / name / "checkpoints" / checkpoint_folder_name(steps_to_move()));
  const Ended second = folder.train(name, move.second.ranks, with(overrides, move.second.overrides));
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, testing::HasSubstr("resumed from"));
  expect_same(metrics_of(folder.root / name), expected, name + " resumed", within);
}

}  // namespace herd::train
