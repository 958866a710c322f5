#include "herd/schedule/schedule_text.h"

#include <gmock/gmock.h>

#include "herd/base/error.h"
#include "herd/schedule/builder.h"

namespace herd {
namespace {

const char kText[] =
    "herd-schedule 1\n"
    "collective reduce\n"
    "algorithm some_name\n"
    "rank 1 of 3 root 2\n"
    "elements 10 bf16 accumulate fp32 in_place\n"
    "memory scratch 4 stage 6\n"
    "steps 4\n"
    "receive_reduce <- 0 scratch[0,4) = output[0,4)\n"
    "reduce output[0,4) 2:output[0,4) = scratch[0,4) 0:stage[2,6) complete\n"
    "signal -> 2 output[0,4)\n"
    "wait <- 2\n";

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  try {
    parse_schedule(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorruptFile);
    return error.message();
  }
  return "took it";
}

TEST(ScheduleText, ReadsBackAsItself) {
  const Schedule s = parse_schedule(kText);
  EXPECT_EQ(to_text(s), kText);
  EXPECT_EQ(s.root, 2);
  EXPECT_TRUE(s.in_place);
  ASSERT_EQ(s.steps.size(), 4u);
  EXPECT_EQ(s.steps[1].sources[1], (Slice{0, Space::kStage, 2, 6}));
  EXPECT_TRUE(s.steps[1].completes);
}

TEST(ScheduleText, KeepsCounts) {
  Schedule s = parse_schedule(kText);
  s.collective = Collective::kAllGather;
  s.root = -1;
  s.counts = {7, 0, 3};
  EXPECT_EQ(parse_schedule(to_text(s)), s);
  EXPECT_THAT(refusal(to_text(s), "counts 7 0 3", "counts 7 0"), testing::HasSubstr("line 6: 3 counts stand here"));
  EXPECT_THAT(refusal(to_text(s), "counts 7 0 3", "counts 7 0 3 1"), testing::HasSubstr("line 6: \"1\" is too much"));
}

TEST(ScheduleText, NamesLineAndRuleOfWhatIsWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(kText, "schedule 1", "schedule 2"), HasSubstr("line 1: version is 1, this file says \"2\""));
  EXPECT_THAT(refusal(kText, "collective reduce", "collective reduction"),
              HasSubstr("line 2: no collective \"reduction\""));
  EXPECT_THAT(refusal(kText, "rank 1 of 3", "rank 3 of 3"), HasSubstr("line 4: rank < number of ranks"));
  EXPECT_THAT(refusal(kText, "bf16", "bf17"), HasSubstr("line 5: "));
  EXPECT_THAT(refusal(kText, "elements 10", "elements -1"), HasSubstr("line 5: a number from 0 to"));
  EXPECT_THAT(refusal(kText, "scratch[0,4)", "scratch[4,0)"), HasSubstr("line 8: a number from 4 to"));
  EXPECT_THAT(refusal(kText, "2:output", "3:output"), HasSubstr("line 9: a number from 0 to 2"));
  EXPECT_THAT(refusal(kText, "stage[2,6)", "stack[2,6)"), HasSubstr("line 9: a slice is [RANK:]SPACE[BEGIN,END)"));
  EXPECT_THAT(refusal(kText, "signal ->", "signal <-"), HasSubstr("line 10: \"->\" stands here, not \"<-\""));
  EXPECT_THAT(refusal(kText, "wait <- 2\n", "pause <- 2\n"), HasSubstr("line 11: no step is called \"pause\""));
  EXPECT_THAT(refusal(kText, "wait <- 2\n", ""), HasSubstr("the file ends too early"));
  EXPECT_THAT(refusal(kText, "wait <- 2\n", "wait <- 2\nwait <- 2\n"), HasSubstr("nothing follows the last step"));
  EXPECT_THAT(refusal(kText, "wait <- 2\n", "wait <- 2"), HasSubstr("every line ends with a newline"));
}

TEST(Builder, MapsInputOntoOutputInPlace) {
  Schedule header{.collective = Collective::kAllGather, .self = 1, .num_ranks = 3, .elements = 7};
  Builder apart(header);
  EXPECT_EQ(apart.input(apart.part(1)), (Slice{1, Space::kInput, 0, 2}));
  EXPECT_EQ(apart.output(apart.part(1)), (Slice{1, Space::kOutput, 3, 5}));
  header.in_place = true;
  Builder together(header);
  EXPECT_EQ(together.input(together.part(1)), (Slice{1, Space::kOutput, 3, 5}));
  header.collective = Collective::kReduceScatter;
  header.in_place = false;
  EXPECT_EQ(Builder(header).output(part_of(7, 3, 2), 2), (Slice{2, Space::kOutput, 0, 2}));
}

TEST(Builder, PlacesUnevenParts) {
  const Builder gather(
      {.collective = Collective::kAllGather, .self = 2, .num_ranks = 3, .elements = 6, .counts = {1, 0, 5}});
  EXPECT_EQ(gather.input(gather.part(2)), (Slice{2, Space::kInput, 0, 5}));
  EXPECT_EQ(gather.output(gather.part(2)), (Slice{2, Space::kOutput, 1, 6}));
  EXPECT_EQ(gather.longest_part(), 5);
  const Builder exchange(
      {.collective = Collective::kAllToAll, .self = 1, .num_ranks = 2, .elements = 7, .counts = {1, 2, 3, 4}});
  EXPECT_EQ(exchange.sent(1, 0), (Slice{1, Space::kInput, 0, 3}));
  EXPECT_EQ(exchange.received(1, 0), (Slice{0, Space::kOutput, 1, 4}));
  EXPECT_EQ(exchange.received(1, 1), (Slice{1, Space::kOutput, 2, 6}));
}

TEST(Builder, RefusesCountsThatMakeNoSense) {
  const auto refused = [](const Schedule& header) -> std::string {
    try {
      const Builder builder(header);
    } catch (const Error& error) {
      return error.message();
    }
    return "took it";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused({.collective = Collective::kBroadcast, .num_ranks = 2, .root = 0, .counts = {0, 0}}),
              HasSubstr("broadcast has no parts"));
  EXPECT_THAT(refused({.collective = Collective::kScatter, .num_ranks = 2, .root = 0, .counts = {0}}),
              HasSubstr("needs 2 counts, but has 1"));
  EXPECT_THAT(refused({.collective = Collective::kAllToAll, .num_ranks = 2, .elements = 1, .counts = {0, 1, -1, 0}}),
              HasSubstr("counts[2] = -1"));
  EXPECT_THAT(refused({.collective = Collective::kGather, .num_ranks = 2, .root = 0, .elements = 3, .counts = {1, 1}}),
              HasSubstr("elements = 3, but its counts make 2"));
  EXPECT_THAT(refused({.collective = Collective::kAllToAll, .num_ranks = 2, .elements = 5, .in_place = true}),
              HasSubstr("elements % ranks = 1, not 0"));
}

TEST(Builder, RefusesRanksThatMakeNoSense) {
  for (const Schedule& header :
       {Schedule{.num_ranks = 0}, Schedule{.self = 2, .num_ranks = 2}, Schedule{.elements = -1},
        Schedule{.collective = Collective::kReduce, .num_ranks = 2, .root = 2}}) {
    EXPECT_THROW(Builder{header}, Error);
  }
}

TEST(Builder, AccumulatesSixteenBitFloatsInFp32) {
  EXPECT_EQ(Builder({.dtype = DType::kBF16}).finish().accumulate, DType::kF32);
  EXPECT_EQ(Builder({.dtype = DType::kF64}).finish().accumulate, DType::kF64);
  EXPECT_EQ(Builder({.dtype = DType::kI8}).finish().accumulate, DType::kI8);
}

TEST(Parts, DifferByOneElementAtMostAndLeaveNothingOut) {
  for (const int64_t elements : {0, 1, 5, 6, 7, 1000}) {
    int64_t end = 0;
    for (int part = 0; part < 6; ++part) {
      const Range range = part_of(elements, 6, part);
      EXPECT_EQ(range.begin, end);
      EXPECT_EQ(range.size(), elements / 6 + (part < elements % 6));
      end = range.end;
    }
    EXPECT_EQ(end, elements);
  }
}

}  // namespace
}  // namespace herd
