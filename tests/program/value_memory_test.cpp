// A partial sum and the whole that is made of it in place are one buffer.
#include "herd/program/value_memory.h"

#include <gtest/gtest.h>

#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"

namespace herd::program::testing {
namespace {

const Value kX = activation(1, 0), kPart = placed(kX, kWhole.partial_on(0));

Op written(OpKind kind, Lane lane, std::vector<Value> reads, std::vector<Value> writes) {
  return {.kind = kind, .lane = lane, .reads = std::move(reads), .writes = std::move(writes)};
}

// A forward whose partial sums are summed, and a forward that reads the sum.
Program summed(bool in_place = true) {
  Program step;
  step.mesh = {2, {Axis{"tp", {{1, 2}}}}};
  step.values[kX] = step.values[kPart] = {.bytes = 100};
  step.ops = {written(OpKind::kForward, Lane::kCompute, {}, {kPart}),
              written(in_place ? OpKind::kAllReduce : OpKind::kAllGather, Lane::kActivations, {kPart}, {kX}),
              written(OpKind::kRelease, Lane::kActivations, {}, {kPart}),
              written(OpKind::kForward, Lane::kCompute, {kX}, {}), written(OpKind::kRelease, Lane::kCompute, {}, {kX})};
  return step;
}

TEST(ValueMemory, OfASumInPlaceIsThePartialSums_UntilBothAreReleased) {
  ValueMemory memory(summed());
  EXPECT_EQ(memory.owner(kX), kPart);
  EXPECT_TRUE(memory.take(kPart));
  EXPECT_FALSE(memory.take(kX));
  EXPECT_FALSE(memory.give_back(kPart));
  EXPECT_TRUE(memory.give_back(kX));
  EXPECT_FALSE(memory.give_back(kX)) << "it holds nothing by now";
  EXPECT_EQ(in_order_peak(summed(), Tier::kDevice).bytes, 100);
  EXPECT_EQ(peak_bound(summed(), Tier::kDevice).bytes, 100);
}

TEST(ValueMemory, OfOtherCollectivesIsTheirOwn) {
  ValueMemory memory(summed(false));
  EXPECT_EQ(memory.owner(kX), kX);
  EXPECT_TRUE(memory.take(kPart));
  EXPECT_TRUE(memory.take(kX));
  EXPECT_EQ(in_order_peak(summed(false), Tier::kDevice).bytes, 200);
  EXPECT_EQ(peak_bound(summed(false), Tier::kDevice).bytes, 200);
}

TEST(ValueMemory, IsNotSharedWhereThePartialSumIsMadeAgainWhileTheWholeLives) {
  Program step = summed();
  step.ops.insert(step.ops.begin() + 3, written(OpKind::kForward, Lane::kCompute, {}, {kPart}));
  EXPECT_EQ(ValueMemory(step).owner(kX), kX);
  EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, 200);
}

}  // namespace
}  // namespace herd::program::testing
