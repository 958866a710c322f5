#include "herd/comm/compiled_schedule.h"

#include <gtest/gtest.h>

#include "herd/collectives/request.h"
#include "herd/kernels/copy.h"

namespace herd::comm {
namespace {

using kernels::WriteKind;

Schedule copies(int64_t elements, bool to_stage, bool to_output) {
  Builder b(builder_for({.collective = Collective::kAllGather, .num_ranks = 1, .elements = elements}, "test"));
  std::vector<Slice> targets;
  if (to_output) targets.push_back(b.output(Range{0, elements}));
  if (to_stage) targets.push_back(b.stage(elements));
  b.copy(b.input(Range{0, elements}), targets);
  return b.finish();
}

WriteKind store_of(int64_t bytes, bool to_stage, bool to_output) {
  const CompiledSchedule compiled(copies(bytes / 4, to_stage, to_output));
  EXPECT_EQ(compiled.steps().size(), 1u);
  return compiled.steps()[0].store;
}

TEST(CompiledSchedule, TakesOverTheLinesOfTheStage_WhichPeersReadLast) {
  EXPECT_EQ(store_of(2 << 10, true, false), WriteKind::kTakeOver);
  EXPECT_EQ(store_of(64 << 10, true, true), WriteKind::kTakeOver);
  EXPECT_EQ(store_of(64 << 20, true, true), WriteKind::kTakeOver);
  EXPECT_EQ(store_of(1 << 10, true, false), WriteKind::kCached);
}

TEST(CompiledSchedule, StreamsOutputsThatLeaveTheCache) {
  EXPECT_EQ(store_of(CompiledSchedule::kStreamBytes, false, true), WriteKind::kStream);
  EXPECT_EQ(store_of(CompiledSchedule::kStreamBytes - 4, false, true), WriteKind::kCached);
}

WriteKind store_to_peer(int64_t bytes, bool reduces) {
  const int64_t elements = bytes / 4;
  Builder b(builder_for({.collective = Collective::kAllReduce, .num_ranks = 2, .elements = elements}, "test"));
  const Range all{0, elements};
  const std::vector<Slice> targets = {b.output(all), b.output(all, 1)};
  if (reduces) {
    b.reduce({b.input(all), b.input(all, 1)}, targets, Sum::kComplete);
  } else {
    b.copy(b.input(all), targets);
  }
  const CompiledSchedule compiled(b.finish());
  return compiled.steps()[0].store;
}

TEST(CompiledSchedule, CopiesToPeersTakeOverTheirLines_AndReductionsHaveReadThem) {
  if (!kernels::has_take_over_stores()) GTEST_SKIP() << "no fast string copy here";
  EXPECT_EQ(store_to_peer(2 << 10, false), WriteKind::kTakeOver);
  EXPECT_EQ(store_to_peer(1 << 10, false), WriteKind::kCached);
  EXPECT_EQ(store_to_peer(2 << 10, true), WriteKind::kCached);
  EXPECT_EQ(store_to_peer(CompiledSchedule::kStreamBytes, false), WriteKind::kStream);
}

}  // namespace
}  // namespace herd::comm
