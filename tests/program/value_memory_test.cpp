// A partial sum and the whole that is made of it in place are one buffer.
#include "herd/program/value_memory.h"

#include <gtest/gtest.h>

#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"

namespace herd::program::testing {
namespace {

const Value kX = activation(1, 0), kPart = placed(kX, kWhole.partial_on(0));

Op written(OpKind kind, Lane lane, std::vector<Value> reads, std::vector<Value> writes) {
  return {.kind = kind, .lane = lane, .reads = std::move(reads), .writes = std::move(writes)};
}

int64_t bytes_of(const std::vector<ValueMemory::Memory>& memories) {
  int64_t sum = 0;
  for (const ValueMemory::Memory& memory : memories) sum += memory.bytes;
  return sum;
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
  const Program step = summed();
  ValueMemory memory(step);
  EXPECT_EQ(memory.owner(kX), kPart);
  EXPECT_EQ(bytes_of(memory.take(kPart)), 100);
  EXPECT_EQ(bytes_of(memory.take(kX)), 0);
  EXPECT_EQ(bytes_of(memory.give_back(kPart)), 0);
  EXPECT_EQ(bytes_of(memory.give_back(kX)), 100);
  EXPECT_EQ(bytes_of(memory.give_back(kX)), 0) << "it holds nothing by now";
  EXPECT_EQ(in_order_peak(summed(), Tier::kDevice).bytes, 100);
  EXPECT_EQ(peak_bound(summed(), Tier::kDevice).bytes, 100);
}

TEST(ValueMemory, OfOtherCollectivesIsTheirOwn) {
  const Program step = summed(false);
  ValueMemory memory(step);
  EXPECT_EQ(memory.owner(kX), kX);
  EXPECT_EQ(bytes_of(memory.take(kPart)), 100);
  EXPECT_EQ(bytes_of(memory.take(kX)), 100);
  EXPECT_EQ(in_order_peak(summed(false), Tier::kDevice).bytes, 200);
  EXPECT_EQ(peak_bound(summed(false), Tier::kDevice).bytes, 200);
}

TEST(ValueMemory, IsNotSharedWhereThePartialSumIsMadeAgainWhileTheWholeLives) {
  Program step = summed();
  step.ops.insert(step.ops.begin() + 3, written(OpKind::kForward, Lane::kCompute, {}, {kPart}));
  EXPECT_EQ(ValueMemory(step).owner(kX), kX);
  EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, 200);
}

// Two forwards whose graphs refer to what the first gives, and their backwards.
Program with_graphs() {
  const Value x = activation(1, 0), y = activation(2, 0), first = graph(0, 0), second = graph(1, 0);
  Program step;
  step.num_blocks = 2;
  step.block_groups = {{}, {}};
  step.values[x] = {.bytes = 100};
  step.values[y] = {.bytes = 1};
  step.values[first] = {.bytes = 10};
  step.values[second] = {.bytes = 20};
  step.kept = {{0, {spec::TensorId(1)}}, {1, {spec::TensorId(1)}}};
  const auto op = [](OpKind kind, int block, std::vector<Value> reads, std::vector<Value> writes) {
    Op out = written(kind, Lane::kCompute, std::move(reads), std::move(writes));
    out.block = block;
    return out;
  };
  step.ops = {op(OpKind::kForward, 0, {}, {x, first}),   op(OpKind::kForward, 1, {x}, {y, second}),
              op(OpKind::kRelease, -1, {}, {x}),         op(OpKind::kBackward, 1, {y, second}, {}),
              op(OpKind::kRelease, -1, {}, {y, second}), op(OpKind::kBackward, 0, {first}, {}),
              op(OpKind::kRelease, -1, {}, {first})};
  return step;
}

TEST(ValueMemory, OfAnActivationLivesAsLongAsTheGraphsThatReferToIt) {
  const Program step = with_graphs();
  ValueMemory memory(step);
  const Value x = activation(1, 0);
  EXPECT_EQ(bytes_of(memory.take(x)), 100);
  EXPECT_EQ(bytes_of(memory.take(graph(0, 0))), 10);
  EXPECT_EQ(bytes_of(memory.take(graph(1, 0))), 20);
  EXPECT_EQ(bytes_of(memory.give_back(x)), 0);
  EXPECT_EQ(bytes_of(memory.give_back(graph(1, 0))), 20);
  EXPECT_EQ(bytes_of(memory.give_back(graph(0, 0))), 110);
  EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, 131);
  EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, 131);
}

TEST(ValueMemory, OfGraphsIsWrittenIntoTheText) { EXPECT_EQ(parse_program(to_text(with_graphs())), with_graphs()); }

TEST(ValueMemory, OfAGraphHasACopyOfWhatIsReleased_AsARecomputedOneHas) {
  const Program step = with_graphs();
  ValueMemory memory(step);
  EXPECT_EQ(bytes_of(memory.take(graph(0, 0))), 110);
  EXPECT_EQ(bytes_of(memory.give_back(graph(0, 0))), 110);
}

}  // namespace
}  // namespace herd::program::testing
