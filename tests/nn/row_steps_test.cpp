// The steps of an exchange are right for any counts, as a proof on their operands says and as rows that are moved by
// them show; steps with an operand or a rank changed are not.
#include "herd/nn/row_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <tuple>

namespace herd::nn {
namespace {

using AllSteps = std::vector<std::vector<RowStep>>;

AllSteps steps_of_ranks(int ranks) {
  AllSteps out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(row_steps(ranks, rank));
  return out;
}

// Moves rows (source, target, number) by the steps. Returns whether each came once, in the order of sources.
bool moves_rows(const AllSteps& steps, const std::vector<std::vector<int64_t>>& counts) {
  const size_t P = steps.size();
  const auto counts_to = [&](size_t rank) {
    std::vector<int64_t> out;
    for (size_t source = 0; source < P; ++source) out.push_back(counts[source][rank]);
    return out;
  };
  using Row = std::tuple<size_t, size_t, int64_t>;
  std::vector<std::vector<Row>> rows(P), expected(P), come(P);
  for (size_t source = 0; source < P; ++source) {
    for (size_t target = 0; target < P; ++target) {
      for (int64_t i = 0; i < counts[source][target]; ++i)
        rows[source].emplace_back(source, target, i), expected[target].emplace_back(source, target, i);
    }
  }
  for (size_t rank = 0; rank < P; ++rank) come[rank].assign(expected[rank].size(), Row(P, P, -1));
  for (size_t rank = 0; rank < P; ++rank) {
    for (size_t i = 0; i < steps[rank].size(); ++i) {
      const RowStep& step = steps[rank][i];
      const auto target = static_cast<size_t>(step.target);
      if (target >= P || i >= steps[target].size() || steps[target][i].source != static_cast<int>(rank)) return false;
      const RowStep& other = steps[target][i];
      const int64_t begin = step.send_begin.value(counts[rank], counts_to(rank)),
                    count = step.send_rows.value(counts[rank], counts_to(rank)),
                    to = other.receive_begin.value(counts[target], counts_to(target));
      if (count != other.receive_rows.value(counts[target], counts_to(target)) || begin < 0 || to < 0 || count < 0 ||
          begin + count > std::ssize(rows[rank]) || to + count > std::ssize(come[target]))
        return false;
      std::copy_n(rows[rank].begin() + begin, count, come[target].begin() + to);
    }
  }
  return come == expected;
}

std::vector<std::vector<int64_t>> drawn_counts(int ranks, std::mt19937_64& random, int64_t capacity) {
  const auto P = static_cast<size_t>(ranks);
  std::vector<std::vector<int64_t>> out(P, std::vector<int64_t>(P));
  for (auto& row : out) {
    for (int64_t& count : row) count = static_cast<int64_t>(random() % static_cast<uint64_t>(capacity + 1));
  }
  return out;
}

TEST(RowSteps, AreProvedForAllCounts_AndMoveRowsOfAny) {
  std::mt19937_64 random(1);
  for (const int ranks : {1, 2, 3, 4, 5, 8, 9, 16, 17}) {
    const AllSteps steps = steps_of_ranks(ranks);
    EXPECT_EQ(unproved(steps), "");
    for (const int64_t capacity : {0, 1, 7}) EXPECT_TRUE(moves_rows(steps, drawn_counts(ranks, random, capacity)));
  }
}

// A mutant that moves rows of any counts alike is none; all others must be found.
TEST(RowSteps, MutantsAreFound) {
  std::mt19937_64 random(2);
  int mutants = 0;
  for (const int ranks : {2, 3, 5}) {
    const AllSteps steps = steps_of_ranks(ranks);
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      for (size_t i = 0; i < steps.size(); ++i) {
        const std::vector<std::function<void(AllSteps&, RowStep&)>> changes = {
            [](AllSteps&, RowStep& step) { ++step.send_begin.base; },
            [](AllSteps&, RowStep& step) { ++step.receive_begin.base; },
            [](AllSteps&, RowStep& step) { --step.receive_rows.base; },
            [](AllSteps&, RowStep& step) { ++step.send_rows.of_sent[0]; },
            [](AllSteps&, RowStep& step) { std::swap(step.send_rows.of_sent, step.send_rows.of_received); },
            [](AllSteps&, RowStep& step) { std::swap(step.send_rows, step.receive_rows); },
            [](AllSteps&, RowStep& step) {
              std::rotate(step.send_rows.of_sent.begin(), step.send_rows.of_sent.begin() + 1,
                          step.send_rows.of_sent.end());
            },
            [](AllSteps&, RowStep& step) { step.target = (step.target + 1) % 2; },
            [](AllSteps&, RowStep& step) { std::swap(step.target, step.source); },
            [&](AllSteps& all, RowStep&) { all[rank].pop_back(); },
            [&](AllSteps& all, RowStep& step) { std::swap(step, all[rank].back()); }};
        for (const auto& change : changes) {
          AllSteps mutant = steps;
          change(mutant, mutant[rank][i]);
          if (mutant == steps) continue;
          ++mutants;
          bool goes_wrong = false;
          for (int draw = 0; draw < 5; ++draw) goes_wrong |= !moves_rows(mutant, drawn_counts(ranks, random, 6));
          EXPECT_EQ(unproved(mutant).empty(), !goes_wrong) << "rank " << rank << ", step " << i << unproved(mutant);
        }
      }
    }
  }
  EXPECT_GT(mutants, 200);
}

}  // namespace
}  // namespace herd::nn
