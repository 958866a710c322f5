#include "herd/collectives/tuning.h"

#include <gmock/gmock.h>

#include "herd/base/error.h"
#include "herd/collectives/choose.h"
#include "herd/collectives/registry.h"
#include "herd/topology/presets.h"

namespace herd {
namespace {

const Tuning kTuning{{{Collective::kAllReduce, {1, 2}, true, 1 << 10, "staged", 3.5},
                      {Collective::kAllReduce, {1, 2}, true, 1 << 20, "ring", 100},
                      {Collective::kAllReduce, {1, 2}, false, 1 << 20, "staged", 140}}};
// Each of them what the model would not choose.
const Tuning kPlaced{{{Collective::kAllReduce, {1, 4}, false, 1 << 20, "ring", 1},
                      {Collective::kAllReduce, {2, 2}, false, 1 << 20, "naive", 2},
                      {Collective::kAllReduce, {2, 2, true}, false, 1 << 20, "recursive_doubling", 3},
                      {Collective::kAllReduce, {4, 1}, false, 1 << 20, "binomial_tree", 4}}};

CollectiveRequest request_of(int64_t bytes, bool direct = true) {
  return {.num_ranks = 2, .elements = bytes / 4, .in_place = true, .direct = direct, .same_host = true};
}

TEST(Tuning, ReadsBackAsItself) {
  for (const Tuning& tuning : {kTuning, kPlaced}) EXPECT_EQ(parse_tuning(to_text(tuning)), tuning);
  Tuning tuning = kTuning;
  tuning.machine = "AMD EPYC, 2 cores";
  EXPECT_EQ(parse_tuning(to_text(tuning)), tuning);
}

TEST(Tuning, AnswersWithTheNearestSizeOfTheSameMemory) {
  EXPECT_EQ(find_tuned(kTuning, request_of(2 << 20))->algorithm, "ring");
  EXPECT_EQ(find_tuned(kTuning, request_of(512))->algorithm, "staged");
  EXPECT_EQ(find_tuned(kTuning, request_of(1 << 20, false))->us, 140);
  EXPECT_FALSE(find_tuned(kTuning, request_of(64 << 20)));
  CollectiveRequest other = request_of(1 << 20);
  other.num_ranks = 3;
  EXPECT_FALSE(find_tuned(kTuning, other));
}

TEST(Tuning, ReadsAFileOfVersionOne) {
  EXPECT_EQ(parse_tuning("herd-tuning 1\nall_reduce 2 ordinary 1048576 staged 140\n").sizes[0], kTuning.sizes[2]);
}

// What is chosen for four ranks that are placed so; empty: what the model says.
std::string tuned_on(const Topology& topology) {
  const CollectiveRequest request{.num_ranks = 4, .elements = 1 << 18, .in_place = true, .same_host = true};
  const Choice choice = choose(request, topology, {.tuning = &kPlaced});
  EXPECT_NE(choice.candidates[0].algorithm.name, choice.algorithm) << topology.name;
  return choice.reason.find("overrides the model") == std::string::npos ? "" : choice.algorithm;
}

TEST(Tuning, CountsForRanksThatArePlacedAlike) {
  const Topology blocks = *preset("hosts:2x2");
  EXPECT_EQ(tuned_on(blocks), "naive");
  EXPECT_EQ(tuned_on(placed_cyclically(blocks)), "recursive_doubling");
  EXPECT_EQ(tuned_on(*preset("hosts:4x1")), "binomial_tree");
}

TEST(Tuning, IsLeftOut_WhereRanksArePlacedOtherwise) {
  const CollectiveRequest request{.num_ranks = 4, .elements = 1 << 18, .in_place = true, .same_host = true};
  Topology crossed = *preset("hosts:2x2");
  crossed.placement = {0, 1, 1, 0};
  Topology uneven = *preset("hosts:2x2");
  uneven.hosts[0].ranks = 3, uneven.hosts[1].ranks = 1;
  for (const Topology& topology : {crossed, uneven, *preset("torus:2x2"), *preset("racks:2x2x1")}) {
    EXPECT_FALSE(find_tuned(kPlaced, placed_on(request, topology))) << topology.name;
  }
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
  using testing::AnyOf;
  using testing::HasSubstr;
  EXPECT_THAT(refusal("herd-topology 1\n"), HasSubstr("line 1: the file begins with \"herd-tuning 2\""));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2\n"), HasSubstr("line 2: a line is: COLLECTIVE PLACEMENT"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 shared 1 ring 1\n"), HasSubstr("symmetric or ordinary"));
  EXPECT_THAT(refusal("herd-tuning 1\n\nall_reduce 2 ordinary -1 ring 1\n"), HasSubstr("line 3: a number >= 0"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 ordinary 1 ring nan\n"), HasSubstr("line 2: a number >= 0"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 ordinary 1 ring inf\n"), HasSubstr("line 2: a number >= 0"));
  for (const char* placement : {"0", "1x4", "2x0", "2x2-block", "4x1-cyclic", "4-cyclic", "2x2x2", "02"}) {
    EXPECT_THAT(
        refusal("herd-tuning 2\nall_reduce " + std::string(placement) + " ordinary 1 ring 1\n"),
        AnyOf(HasSubstr("line 2: ranks are placed as 4, 2x2 or 2x2-cyclic"), HasSubstr("line 2: a number >= 0")))
        << placement;
  }
  EXPECT_THAT(refusal("herd-tuning 2\nall_reduce 2x2 symmetric 1 ring 1\n"), HasSubstr("memory is ordinary"));
  EXPECT_THAT(refusal("herd-tuning 1\nall_reduce 2 ordinary 1 rung 1\n"),
              HasSubstr("line 2: no algorithm of all_reduce is called \"rung\""));
  EXPECT_THAT(refusal("herd-tuning 1\n" + std::string(500, 'x') + "\n"), HasSubstr("at most 400 characters"));
  EXPECT_THAT(refusal("herd-tuning 1\nmachine a\nmachine b\n"), HasSubstr("once"));
}

// A tuning file and a call may have the lectures' word, or the one before.
TEST(Tuning, KnowsAlgorithmsByTheirOtherNames) {
  using namespace std::literals;
  EXPECT_EQ(canonical_name(Collective::kAllReduce, "butterfly"sv), "recursive_doubling");
  EXPECT_EQ(canonical_name(Collective::kReduceScatter, "path"), "chain");
  EXPECT_EQ(canonical_name(Collective::kBroadcast, "path"), "path");
  const CollectiveRequest request{.collective = Collective::kAllReduce, .num_ranks = 4, .elements = 8};
  EXPECT_EQ(build_schedule("butterfly"sv, request).algorithm, "recursive_doubling");
}

}  // namespace
}  // namespace herd
