#include "herd/data/batch.h"

#include <gtest/gtest.h>

namespace herd {
namespace {

TEST(Batch, RanksShareTheStepsSamplesInOrder_FloorOrCeilEach) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const int64_t batch : {1, 2, 7, 12, 16, 1000}) {
      int64_t next = 5 * batch;
      for (Rank rank = 0; rank < ranks; ++rank) {
        const SampleRange range = samples_of_rank(5 * batch, batch, rank, ranks);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.end - range.begin, batch / ranks);
        EXPECT_LE(range.end - range.begin, (batch + ranks - 1) / ranks);
        next = range.end;
      }
      EXPECT_EQ(next, 6 * batch);
    }
  }
}

TEST(Batch, EveryRankRunsTheSameNumberOfMicroBatches_EnoughForTheLongest) {
  EXPECT_EQ(num_micro_batches(12, 2, 2), 3);
  EXPECT_EQ(num_micro_batches(12, 2, 5), 2);  // 2 or 3 samples a rank
  EXPECT_EQ(num_micro_batches(1, 4, 3), 1);
  EXPECT_EQ(num_micro_batches(13, 1, 4), 4);
}

// The rows with weight, over all ranks and micro-batches, are the samples of one rank with one micro-batch.
TEST(Batch, RowsWithWeightAreTheSameSamplesForAnyRanksAndMicroBatch) {
  const auto source = random_samples(100, 8, 1);
  constexpr int64_t kBatch = 13;
  MicroBatch whole;
  read_micro_batch(*source, samples_of_rank(26, kBatch, 0, 1), kBatch, 0, whole);
  for (int ranks : {1, 2, 3, 4, 9, 16}) {
    for (int64_t micro_batch : {1, 2, 3, 13, 20}) {
      std::vector<int64_t> samples, inputs, targets;
      int64_t counted = 0;
      for (Rank rank = 0; rank < ranks; ++rank) {
        for (int64_t m = 0; m < num_micro_batches(kBatch, micro_batch, ranks); ++m) {
          MicroBatch batch;
          read_micro_batch(*source, samples_of_rank(26, kBatch, rank, ranks), micro_batch, m, batch);
          counted += batch.counted_targets();
          for (int64_t row = 0; row < micro_batch; ++row) {
            const auto* targets_T = batch.targets_BT.data() + row * 8;
            if (batch.weights_B[static_cast<size_t>(row)] == 0) {
              EXPECT_EQ(targets_T[0], kIgnoredTarget);
              EXPECT_EQ(batch.samples_B[static_cast<size_t>(row)], -1);
              continue;
            }
            samples.push_back(batch.samples_B[static_cast<size_t>(row)]);
            inputs.insert(inputs.end(), batch.inputs_BT.data() + row * 8, batch.inputs_BT.data() + row * 8 + 8);
            targets.insert(targets.end(), targets_T, targets_T + 8);
          }
        }
      }
      EXPECT_EQ(counted, kBatch * 8);
      EXPECT_EQ(samples, whole.samples_B);
      EXPECT_EQ(inputs, whole.inputs_BT);
      EXPECT_EQ(targets, whole.targets_BT);
    }
  }
}

TEST(Batch, TargetsAreTheNextInputs) {
  MicroBatch batch;
  read_micro_batch(*random_samples(50, 5, 9), {3, 5}, 2, 0, batch);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t t = 0; t + 1 < 5; ++t) EXPECT_EQ(batch.targets_BT[row * 5 + t], batch.inputs_BT[row * 5 + t + 1]);
  }
}

}  // namespace
}  // namespace herd
