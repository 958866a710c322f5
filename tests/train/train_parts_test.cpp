#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/train/replica_hash.h"
#include "herd/train/step_record.h"

namespace herd::train {
namespace {

TEST(ReplicaHash, SaysNothing_WhenAllRanksAgree) {
  EXPECT_EQ(describe_differences({1, 2, 1, 2, 1, 2}, 3, {"wte", "h.0"}), "");
}

TEST(ReplicaHash, NamesTheRankThatLeftTheMajority_AndTheGroups) {
  EXPECT_EQ(describe_differences({1, 2, 1, 2, 1, 9, 1, 2}, 4, {"wte", "h.0"}),
            "rank 2 holds other weights than ranks 0, 1, 3 in h.0");
  EXPECT_EQ(describe_differences({5, 5, 1, 2, 1, 2}, 3, {"wte", "h.0"}),
            "rank 0 holds other weights than ranks 1, 2 in wte, h.0");
}

TEST(ReplicaHash, TrustsTheLowestRank_WhenTwoDisagree) {
  EXPECT_EQ(describe_differences({1, 2}, 2, {"wte"}), "rank 1 holds other weights than rank 0 in wte");
}

StepRecord some_step() {
  StepRecord record;
  record.steps = 20000;
  record.metrics.step = 12000;
  record.metrics.loss = 4.8123;
  record.metrics.grad_norm = 0.912;
  record.metrics.lr = 3e-4;
  record.metrics.tokens_per_s = 5321;
  record.metrics.device_bytes_peak = 256 << 20;
  record.metrics.step_ms = 98.1;
  record.left_s = 90;
  return record;
}

TEST(StepLine, ShowsBudgetAndPrediction_WhereTheyAreKnown) {
  StepRecord record = some_step();
  EXPECT_THAT(
      step_line(record),
      testing::StartsWith("step 12000/20000  loss 4.8123  norm 0.91  lr 0.0003  256 MiB  5321 tok/s  98.1 ms  left "));
  record.device_budget = 1 << 30;
  record.metrics.predicted_step_ms = 95.4;
  EXPECT_THAT(step_line(record), testing::HasSubstr("  25 % of 1 GiB  5321 tok/s  98.1 ms, est. 95.4 ms  left"));
  record.metrics.val_loss = 4.9;
  EXPECT_EQ(validation_line(record), "step 12000/20000  val_loss 4.9000");
  record.metrics.val_figures = {{"right", 0.75}};
  EXPECT_EQ(validation_line(record), "step 12000/20000  val_loss 4.9000  right 0.7500");
}

TEST(StepLine, FitsATerminalOf120Columns_WithItsRank) {
  StepRecord record = some_step();
  record.device_budget = int64_t{80} << 30;
  record.metrics.tokens_per_s = 123456;
  record.metrics.predicted_step_ms = 95.4;
  EXPECT_LE(("[0] " + step_line(record)).size(), 120) << step_line(record);
}

TEST(BesideMatmul, GivesNoShareOfAMatmulThatWasTimedUnderLoad) {
  EXPECT_EQ(beside_matmul(70.6, 100), "a rank computes at 70.6 GFLOP/s, 71 % of a large matmul's rate");
  EXPECT_EQ(beside_matmul(97.3, 0.6), "a rank computes at 97.3 GFLOP/s, over 100 % of a large matmul's rate");
}

}  // namespace
}  // namespace herd::train
