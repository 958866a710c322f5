#include "herd/cli/probe_sizes.h"

#include <gtest/gtest.h>

#include <optional>

namespace herd::cli {
namespace {

// What the probe copies lies in the memory it has, whatever is asked.
TEST(ProbeSizes, StayInTheirMemory) {
  for (const int64_t bytes :
       {0L, 1L, 16L, 100L, 4L << 10, 64L << 10, 300'001L, 1L << 20, 16L << 20, 64L << 20, 5L << 30}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8, 17, 64}) {
      for (const bool reduces : {false, true}) {
        for (const bool in_place : {false, true}) {
          for (const bool rooted : {false, true}) {
            for (const bool by_turns : {false, true}) {
              const ProbedOperation operation{bytes, DType::kF32,
                                              reduces ? std::optional(ReduceOp::kSum) : std::nullopt, in_place, rooted};
              const ProbeSizes size = probe_sizes(operation, ranks, by_turns);
              const int64_t memory = size.memory(operation, ranks);
              SCOPED_TRACE(testing::Message() << bytes << " B, " << ranks << " ranks, reduces " << reduces
                                              << ", in place " << in_place << ", rooted " << rooted);
              EXPECT_GE(size.buffer, 64);
              EXPECT_GE(size.buffer, size.part);
              EXPECT_GE(size.buffer, size.staged);
              EXPECT_GT(size.staged, 0);
              EXPECT_GE(size.shorter, 8);
              EXPECT_GE(size.message, 2 * size.shorter);
              EXPECT_GE(memory, size.buffer);
              EXPECT_GE(memory, size.read);
              EXPECT_GE(memory, size.message * (rooted ? 1 : ranks));
              if (reduces && !in_place) {
                EXPECT_GE(memory, 2 * size.read);
              }
              if (reduces && in_place && !rooted) {
                const int64_t one = size.place(operation, ranks, false), other = size.place(operation, ranks, true);
                EXPECT_LE(one + size.part, other);
                EXPECT_LE(other + size.part, memory);
                EXPECT_EQ(other % 64, 0);
              }
              if (by_turns) {
                EXPECT_GE(size.part, 16 << 10);
              }
              if (by_turns && !operation.takes_whole()) {
                EXPECT_GE(size.read, 16 << 10);
              }
              EXPECT_LE(memory, int64_t{256} << 20);
              for (const int64_t one : {size.buffer, size.part, size.staged}) EXPECT_EQ(one % 64, 0);
            }
          }
        }
      }
    }
  }
}

TEST(ProbeSizes, AreThoseOfTheOperation) {
  const ProbedOperation all_reduce{1 << 20, DType::kF32, ReduceOp::kSum, true, false};
  EXPECT_EQ(probe_sizes(all_reduce, 4, false).staged, 32 << 10);  // an eighth, a part for each rank
  EXPECT_EQ(probe_sizes(all_reduce, 4, false).message, 128 << 10);
  const ProbedOperation shorter{4 << 10, DType::kF32, ReduceOp::kSum, true, false};
  EXPECT_EQ(probe_sizes(shorter, 4, false).staged, 4 << 10);  // every rank reduces all itself
  EXPECT_EQ(probe_sizes(shorter, 4, false).read, 1 << 10);    // or its part, straight from its peers
  const ProbedOperation broadcast{1 << 20, DType::kF32, std::nullopt, true, true};
  EXPECT_EQ(probe_sizes(broadcast, 4, false).staged, 128 << 10);
  EXPECT_EQ(probe_sizes(broadcast, 4, false).read, 1 << 20);
  const ProbedOperation tiny{16, DType::kF32, std::nullopt, false, false};
  EXPECT_EQ(probe_sizes(tiny, 2, false).buffer, 64);  // what a first line costs, many would hide
  const ProbedOperation gather{64 << 10, DType::kF32, std::nullopt, false, true};
  EXPECT_EQ(probe_sizes(gather, 4, false).message, 16 << 10);
  EXPECT_EQ(probe_sizes(gather, 4, false).buffer, 16 << 10);
  const ProbedOperation longer{1 << 20, DType::kF32, std::nullopt, false, true};
  EXPECT_EQ(probe_sizes(longer, 4, false).buffer, 640 << 10);  // half of the root's whole and part
}

}  // namespace
}  // namespace herd::cli
