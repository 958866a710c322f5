#include "herd/schedule/step_dependencies.h"

#include <gmock/gmock.h>

#include "herd/schedule/builder.h"

namespace herd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Slice out(int64_t begin, int64_t end) { return {0, Space::kOutput, begin, end}; }
Slice in(int64_t begin, int64_t end) { return {0, Space::kInput, begin, end}; }

Builder three_ranks() { return Builder({.collective = Collective::kAllReduce, .num_ranks = 3, .elements = 30}); }

TEST(Dependencies, StepsOfALaneGoInOrder) {
  Builder b = three_ranks();
  b.send(1, in(0, 10));
  b.send(2, in(0, 10));
  b.send(1, in(10, 20));
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0)));
}

TEST(Dependencies, AReadWaitsForTheWritesItOverlaps) {
  Builder b = three_ranks();
  b.receive(1, out(0, 10));
  b.receive(2, out(10, 20));
  b.send(1, out(5, 15));
  b.send(2, out(20, 30));
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0, 1), IsEmpty()));
}

TEST(Dependencies, AWriteWaitsForReadsAndWrites) {
  Builder b = three_ranks();
  b.send(1, out(0, 10));
  b.send(2, out(0, 10));
  b.receive(1, out(9, 10));
  b.receive(2, out(8, 10));
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0, 1), ElementsAre(2)));
}

TEST(Dependencies, TheSameRangeOfAnotherRankOrSpaceIsOtherMemory) {
  Builder b = three_ranks();
  b.copy(in(0, 10), {out(0, 10)});
  b.send(1, in(0, 10));
  b.wait(1, {Builder::on_rank(out(0, 10), 1)});
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(Dependencies, SignalAndWaitOrderWhatTouchesTheirSlices) {
  Builder b = three_ranks();
  b.receive(1, out(0, 10));
  b.signal(2, {out(0, 10)});          // hands over what was received
  b.wait(2, {out(0, 10)});            // gets it back
  b.copy(out(0, 10), {out(10, 20)});  // follows the wait
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(Dependencies, EdgesThatOthersImplyAreLeftOut) {
  Builder b = three_ranks();
  b.receive(1, out(0, 10));
  b.copy(out(0, 10), {out(10, 20)});
  b.send(1, out(0, 20));  // after the copy, so after the receive
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(1)));
}

TEST(Dependencies, EmptySlicesOrderNothing) {
  Builder b = three_ranks();
  b.receive(1, out(0, 10));
  b.send_empty(1, {});
  b.send_empty(2, {out(0, 10)});
  EXPECT_THAT(derive_dependencies(b.finish()), ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0)));
}

}  // namespace
}  // namespace herd
