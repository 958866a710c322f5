// What the verifier says of small wrong schedules: rank, step and slices in words.
#include "herd/schedule/verify_schedule.h"

#include <gmock/gmock.h>

#include "herd/schedule/builder.h"

namespace herd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Builder rank_of_two(Rank self, bool in_place = false) {
  return Builder({.collective = Collective::kAllReduce,
                  .algorithm = "test",
                  .self = self,
                  .num_ranks = 2,
                  .elements = 8,
                  .in_place = in_place});
}

constexpr Range kAll{0, 8};

// The exchange: both send all they have, and add what they get.
Schedule exchange(Rank self) {
  Builder b = rank_of_two(self);
  b.send(1 - self, b.input(kAll));
  b.receive_reduce(1 - self, b.output(kAll), b.input(kAll), Sum::kComplete);
  return b.finish();
}

std::string first_finding(const std::vector<Schedule>& all) {
  const auto findings = verify(all);
  return findings.empty() ? "nothing" : describe(findings[0]);
}

TEST(Verify, SeesThatRanksAddInDifferentOrders) {
  // own + other: the same sum, but other bits in general.
  EXPECT_THAT(first_finding({exchange(0), exchange(1)}),
              HasSubstr("rank 1: adds elements [0,8) in another order than rank 0, so bits may differ"));
}

TEST(Verify, PassesASumInOneOrder) {
  Builder a = rank_of_two(0), b = rank_of_two(1);
  a.send(1, a.input(kAll));
  a.receive(1, a.output(kAll));
  b.receive_reduce(0, b.output(kAll), b.input(kAll), Sum::kComplete);
  b.send(0, b.output(kAll));
  EXPECT_EQ(first_finding({a.finish(), b.finish()}), "nothing");
}

TEST(Verify, NamesBothEndsOfADeadlock) {
  // Each sends only after it has received.
  std::vector<Schedule> all;
  for (const Rank self : {0, 1}) {
    Builder b = rank_of_two(self);
    b.receive_reduce(1 - self, b.output(kAll), b.input(kAll), Sum::kComplete);
    b.send(1 - self, b.output(kAll));
    all.push_back(b.finish());
  }
  const auto findings = verify(all);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(describe(findings[0]), HasSubstr("rank 0, step 0: receive from 1"));
  EXPECT_THAT(describe(findings[0]), HasSubstr("waits for rank 1 for ever (deadlock)"));
  EXPECT_EQ(findings[1].rank, 1);
}

TEST(Verify, SeesADeadlockThatBuffersWouldHide) {
  // In place both send what the receive then overwrites: fine with buffers, stuck without.
  std::vector<Schedule> all;
  for (const Rank self : {0, 1}) {
    Builder b = rank_of_two(self, true);
    b.send(1 - self, b.output(kAll));
    b.receive_reduce(1 - self, b.output(kAll), b.output(kAll), Sum::kComplete);
    all.push_back(b.finish());
  }
  EXPECT_THAT(first_finding(all), HasSubstr("rank 0, step 0: send to 1"));
}

TEST(Verify, SeesAPeerReadBeforeItsRankHasBegun) {
  std::vector<Schedule> all;
  for (const Rank self : {0, 1}) {
    Builder b = rank_of_two(self);
    b.reduce({b.input(kAll, 0), b.input(kAll, 1)}, {b.output(kAll)}, Sum::kComplete);
    all.push_back(b.finish());
  }
  EXPECT_THAT(first_finding(all), HasSubstr("with no order between it and the caller of rank"));
}

TEST(Verify, SeesAContributionAddedTwice_LeftOut_OrDividedTooEarly) {
  Schedule twice = exchange(0);
  twice.steps[1].sources[0] = twice.steps[1].targets[0];
  twice.steps.insert(twice.steps.begin(), Step{.kind = StepKind::kReduce,
                                               .targets = {{0, Space::kOutput, 0, 8}},
                                               .sources = {{0, Space::kInput, 0, 8}, {0, Space::kInput, 0, 8}}});
  EXPECT_THAT(first_finding({twice, exchange(1)}), HasSubstr("adds the contribution of rank 0 twice"));

  Schedule early = exchange(0);
  early.steps.push_back(Step{.kind = StepKind::kReduce,
                             .targets = {{0, Space::kOutput, 0, 8}},
                             .sources = {{0, Space::kInput, 0, 8}},
                             .completes = true});
  EXPECT_THAT(first_finding({early, exchange(1)}), HasSubstr("completes a value with 1 of 2 contributions"));

  Schedule unfinished = exchange(0);
  unfinished.steps[1].completes = false;
  EXPECT_THAT(first_finding({unfinished, exchange(1)}),
              HasSubstr("ends with the sum of ranks 0 1 in rank 0 output[0,8), not the complete sum"));
}

TEST(Verify, SeesWhatDoesNotMatch) {
  Schedule short_send = exchange(0);
  short_send.steps[0].sources[0].end = 7;
  EXPECT_THAT(first_finding({short_send, exchange(1)}), HasSubstr("sends 7 elements, but step 1 of rank 1 receives 8"));
  Schedule silent = exchange(0);
  silent.steps.erase(silent.steps.begin());
  EXPECT_THAT(first_finding({silent, exchange(1)}), HasSubstr("sends to rank 1 0 times, which receives 1 times"));
}

TEST(Verify, RefusesStepsOutsideOfTheirMemory) {
  Schedule outside = exchange(0);
  outside.steps[1].targets[0].end = 9;
  EXPECT_THAT(first_finding({outside, exchange(1)}), HasSubstr("rank 0 output[0,9) is not within [0,8)"));
  Schedule writes_input = exchange(0);
  writes_input.steps[1].targets[0].space = Space::kInput;
  EXPECT_THAT(first_finding({writes_input, exchange(1)}), HasSubstr("is the caller's input, which is only read"));
  EXPECT_THAT(first_finding({exchange(0), exchange(0)}), HasSubstr("rank 1: its schedule says self = 0"));
}

TEST(Verify, SeesReadsOfMemoryThatHoldsNothing) {
  Builder a = rank_of_two(0), b = rank_of_two(1);
  a.send(1, a.scratch(8));
  b.receive_reduce(0, b.output(kAll), b.input(kAll), Sum::kComplete);
  EXPECT_THAT(first_finding({a.finish(), b.finish()}), HasSubstr("reads rank 0 scratch[0,8), which holds nothing"));
}

TEST(Verify, AsksThatRanksMeetWhereStageMemoryIsUsed) {
  // Rank 0 shows its input through its stage and leaves without hearing from rank 1.
  Builder a(
      {.collective = Collective::kBroadcast, .algorithm = "test", .self = 0, .num_ranks = 2, .root = 0, .elements = 8});
  Builder b(
      {.collective = Collective::kBroadcast, .algorithm = "test", .self = 1, .num_ranks = 2, .root = 0, .elements = 8});
  const Slice stage = a.stage(8);
  b.stage(8);
  a.copy(a.input(kAll), {stage, a.output(kAll)});
  a.signal(1, {stage});
  b.wait(0, {stage});
  b.copy(stage, {b.output(kAll)});
  const auto findings = verify(std::vector<Schedule>{a.finish(), b.finish()});
  ASSERT_THAT(findings, testing::Not(IsEmpty()));
  EXPECT_EQ(describe(findings[0]), "rank 0: can be done before rank 1 has begun");
}

TEST(Verify, CostsNoMoreForHugeCounts) {
  Builder a({.collective = Collective::kBroadcast,
             .algorithm = "test",
             .self = 0,
             .num_ranks = 2,
             .root = 0,
             .elements = int64_t{1} << 60});
  Builder b({.collective = Collective::kBroadcast,
             .algorithm = "test",
             .self = 1,
             .num_ranks = 2,
             .root = 0,
             .elements = int64_t{1} << 60});
  const Range all{0, int64_t{1} << 60};
  a.send(1, a.input(all));
  a.copy(a.input(all), {a.output(all)});
  b.receive(0, b.output(all));
  EXPECT_EQ(first_finding({a.finish(), b.finish()}), "nothing");
}

}  // namespace
}  // namespace herd
