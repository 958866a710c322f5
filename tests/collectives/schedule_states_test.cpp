#include "herd/schedule/schedule_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/schedule/meaning.h"
#include "tests/collectives/all_algorithms.h"

namespace herd::testing_support {
namespace {

ScheduleStates states(std::string_view algorithm, int num_ranks, int64_t elements = 12,
                      Collective collective = Collective::kAllReduce) {
  return states_of(
      build_all_ranks(algorithm, {.collective = collective, .num_ranks = num_ranks, .elements = elements}));
}

int64_t rounds(const ScheduleStates& s) { return static_cast<int64_t>(s.rounds.size()) - 1; }

TEST(ScheduleStates, TakeAsManyRoundsAsTheEquationsSay) {
  EXPECT_EQ(rounds(states("ring", 4)), 2 * (4 - 1));
  EXPECT_EQ(rounds(states("ring", 3)), 2 * (3 - 1));
  EXPECT_EQ(rounds(states("butterfly", 8)), 3);
  EXPECT_EQ(rounds(states("rabenseifner", 8, 64)), 2 * 3);
  EXPECT_EQ(rounds(states("tree", 4)), 2 * 2);
  EXPECT_EQ(rounds(states("naive", 5)), 1);
  EXPECT_EQ(rounds(states("bruck", 8, 64, Collective::kAllGather)), 3);
}

TEST(ScheduleStates, ShowARingRoundByRound) {
  const ScheduleStates ring = states("ring", 3, 6);
  EXPECT_EQ(states_text(ring),
            "before         rank 0  rank 1  rank 2\n"
            "elements 0..1  0       1       2\n"
            "elements 2..3  0       1       2\n"
            "elements 4..5  0       1       2\n"
            "\n"
            "round 1        rank 0  rank 1  rank 2\n"
            "elements 0..1  0       1       1+2\n"
            "elements 2..3  0+2     1       2\n"
            "elements 4..5  0       0+1     2\n"
            "\n"
            "round 2        rank 0  rank 1  rank 2\n"
            "elements 0..1  all     1       1+2\n"
            "elements 2..3  0+2     all     2\n"
            "elements 4..5  0       0+1     all\n"
            "\n"
            "round 3        rank 0  rank 1  rank 2\n"
            "elements 0..1  all     all     1+2\n"
            "elements 2..3  0+2     all     all\n"
            "elements 4..5  all     0+1     all\n"
            "\n"
            "round 4        rank 0  rank 1  rank 2\n"
            "elements 0..1  all     all     all\n"
            "elements 2..3  all     all     all\n"
            "elements 4..5  all     all     all\n");
}

// What the last table says of the elements that a rank must have, of every algorithm.
TEST(ScheduleStates, EndWithWhatTheCollectiveMeans) {
  for (const AlgorithmInfo& info : every_algorithm()) {
    for (const int n : {1, 2, 3, 4, 5, 8}) {
      const CollectiveRequest request{.collective = info.collective, .num_ranks = n, .elements = 2 * n + 1};
      if (!serves(info, request)) continue;
      const std::vector<Schedule> all = build_all_ranks(info.name, request);
      const ScheduleStates s = states_of(all);
      for (Rank rank = 0; rank < n; ++rank) {
        for (const MessagePiece& piece : expected_results(all[static_cast<size_t>(rank)], rank)) {
          for (int64_t e = piece.message_begin; e < piece.message_begin + piece.range.size(); ++e) {
            bool found = false;
            for (size_t chunk = 0; chunk < s.chunks.size(); ++chunk) {
              const auto& c = s.chunks[chunk];
              if (e < c.begin || e >= c.end || (c.from >= 0 && c.from != piece.contributor)) continue;
              const auto& cell = s.rounds.back()[chunk][static_cast<size_t>(rank)];
              found = piece.contributor == kEveryRank ? static_cast<int>(cell.size()) == n
                                                      : cell == ScheduleStates::Cell{piece.contributor};
            }
            EXPECT_TRUE(found) << title(info, request) << " rank " << rank << " element " << e;
          }
        }
      }
    }
  }
}

TEST(ScheduleStates, AreDrawn) {
  const std::string svg = states_svg(states("ring", 4));
  for (const char* words : {"all_reduce by ring, 4 ranks", "after round 6", ">all<", ">0+1<"})
    EXPECT_THAT(svg, testing::HasSubstr(words));
  EXPECT_THAT(states_svg(states("pairwise", 3, 9, Collective::kAllToAll)), testing::HasSubstr("2: ["));
}

}  // namespace
}  // namespace herd::testing_support
