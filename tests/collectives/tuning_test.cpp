#include "herd/collectives/tuning.h"

#include <gmock/gmock.h>

#include "herd/base/error.h"
#include "herd/collectives/choose.h"
#include "herd/topology/presets.h"

namespace herd {
namespace {

const Tuning kTuning{{{Collective::kAllReduce, 2, true, 1 << 10, "staged", 3.5},
                      {Collective::kAllReduce, 2, true, 1 << 20, "ring", 100},
                      {Collective::kAllReduce, 2, false, 1 << 20, "staged", 140}}};

CollectiveRequest request_of(int64_t bytes, bool direct = true) {
  return {.num_ranks = 2, .elements = bytes / 4, .in_place = true, .direct = direct, .same_host = true};
}

TEST(Tuning, ReadsBackAsItself) {
  EXPECT_EQ(parse_tuning(to_text(kTuning)), kTuning);
  Tuning tuning = kTuning;
  tuning.machine = "AMD EPYC, 2 cores";
  EXPECT_EQ(parse_tuning(to_text(tuning)), tuning);
}

TEST(Tuning, AnswersWithTheNearestSizeOfTheSameMemory) {
  EXPECT_EQ(tuned(kTuning, request_of(2 << 20))->algorithm, "ring");
  EXPECT_EQ(tuned(kTuning, request_of(512))->algorithm, "staged");
  EXPECT_EQ(tuned(kTuning, request_of(1 << 20, false))->us, 140);
  EXPECT_FALSE(tuned(kTuning, request_of(64 << 20)));
  CollectiveRequest other = request_of(1 << 20);
  other.num_ranks = 3;
  EXPECT_FALSE(tuned(kTuning, other));
}

TEST(Tuning, OverridesTheModel) {
  const Choice model = choose(request_of(1 << 20), one_host(2, 2));
  const Choice measured = choose(request_of(1 << 20), one_host(2, 2), {.tuning = &kTuning});
  EXPECT_EQ(model.algorithm, "direct_push");
  EXPECT_EQ(measured.algorithm, "ring");
  EXPECT_THAT(measured.reason, testing::HasSubstr("ring: 100 us measured at 1 MiB"));
}

TEST(Tuning, IgnoresAnAlgorithmThatCannotServe) {
  Tuning tuning = kTuning;
  tuning.sizes[1].algorithm = "gone";
  EXPECT_EQ(choose(request_of(1 << 20), one_host(2, 2), {.tuning = &tuning}).algorithm, "direct_push");
}

TEST(Tuning, NamesLineAndRule) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_tuning(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorruptFile);
      return error.message();
    }
    return "took it";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal("herd-topology 1\n"), HasSubstr("line 1: the file begins with \"herd-tuning 1\""));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2\n"), HasSubstr("line 2: a line is: COLLECTIVE RANKS"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 shared 1 ring 1\n"), HasSubstr("symmetric or ordinary"));
  EXPECT_THAT(refusal("herd-tuning 1\n\nall_reduce 2 ordinary -1 ring 1\n"), HasSubstr("line 3: a number >= 0"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 ordinary 1 ring nan\n"), HasSubstr("line 2: a number >= 0"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 ordinary 1 ring inf\n"), HasSubstr("line 2: a number >= 0"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 0 ordinary 1 ring 1\n"), HasSubstr("ranks >= 1"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 ordinary 1 rung 1\n"),
              HasSubstr("line 2: no algorithm of all_reduce is called \"rung\""));
  EXPECT_THAT(refusal("herd-tuning 1\n" + std::string(500, 'x') + "\n"), HasSubstr("at most 400 characters"));
  EXPECT_THAT(refusal("herd-tuning 1\nmachine a\nmachine b\n"), HasSubstr("once"));
}

}  // namespace
}  // namespace herd
