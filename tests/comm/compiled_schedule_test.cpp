#include "herd/comm/compiled_schedule.h"

#include <gtest/gtest.h>

#include "herd/collectives/request.h"

namespace herd::comm {
namespace {

using kernels::StoreKind;

Schedule copies(int64_t elements, bool to_stage, bool to_output) {
  Builder b(builder_for({.collective = Collective::kAllGather, .num_ranks = 1, .elements = elements}, "test"));
  std::vector<Slice> targets;
  if (to_output) targets.push_back(b.output(Range{0, elements}));
  if (to_stage) targets.push_back(b.stage(elements));
  b.copy(b.input(Range{0, elements}), targets);
  return b.finish();
}

StoreKind store_of(int64_t bytes, bool to_stage, bool to_output) {
  const CompiledSchedule compiled(copies(bytes / 4, to_stage, to_output));
  EXPECT_EQ(compiled.steps().size(), 1u);
  return compiled.steps()[0].store;
}

TEST(CompiledSchedule, TakesOverTheLinesOfTheStage_WhichPeersReadLast) {
  EXPECT_EQ(store_of(2 << 10, true, false), StoreKind::kTakeOver);
  EXPECT_EQ(store_of(64 << 10, true, true), StoreKind::kTakeOver);
  EXPECT_EQ(store_of(64 << 20, true, true), StoreKind::kTakeOver);
  EXPECT_EQ(store_of(1 << 10, true, false), StoreKind::kCached);
}

TEST(CompiledSchedule, StreamsOutputsThatLeaveTheCache) {
  EXPECT_EQ(store_of(CompiledSchedule::kStreamBytes, false, true), StoreKind::kStream);
  EXPECT_EQ(store_of(CompiledSchedule::kStreamBytes - 4, false, true), StoreKind::kCached);
}

}  // namespace
}  // namespace herd::comm
