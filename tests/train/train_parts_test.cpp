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

TEST(StepLine, ShowsBudgetShareAndMatmulShare_WhereTheyAreKnown) {
  StepRecord record;
  record.steps = 2000;
  record.metrics.step = 120;
  record.metrics.loss = 4.8123;
  record.metrics.grad_norm = 0.912;
  record.metrics.lr = 3e-4;
  record.metrics.tokens_per_s = 5321;
  record.metrics.device_bytes_peak = 256 << 20;
  record.gflops = 42;
  record.metrics.step_ms = 98.1;
  record.left_s = 90;
  EXPECT_THAT(step_line(record),
              testing::StartsWith("step 120/2000 | loss 4.8123 | norm 0.912 | lr 3.00e-04 | 256 MiB | "
                                  "5321 tokens/s | 42.0 GFLOP/s | 98.1 ms | left "));
  record.device_budget = 1 << 30;
  record.peak_gflops = 84;
  record.metrics.val_loss = 4.9;
  record.metrics.predicted_step_ms = 95.4;
  EXPECT_THAT(step_line(record), testing::HasSubstr("256 MiB, 25 % of 1 GiB"));
  EXPECT_THAT(step_line(record), testing::HasSubstr("50 % of matmul | 98.1 ms, predicted 95.4 ms | val_loss 4.9000 |"));
}

}  // namespace
}  // namespace herd::train
