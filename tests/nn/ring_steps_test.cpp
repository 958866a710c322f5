// Proves the ring's steps of all ranks together: each pair of tokens that the mask allows is computed once, and no
// other pair of real tokens, and its gradient comes home to the key's rank. Steps that are left out, taken twice or of
// the wrong rank don't prove, nor do gradients that are kept.
#include "herd/nn/ring_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "herd/nn/documents.h"

namespace herd::nn {
namespace {

using Steps = std::vector<std::vector<RingStep>>;  // by rank

TokenCut cut_at(int place, int64_t tokens, int parts) {
  return {.tokens = tokens, .place = place, .parts = parts, .zigzag = true};
}

Steps steps_of_all(int64_t tokens, int parts, bool causal) {
  Steps all;
  for (int rank = 0; rank < parts; ++rank) all.push_back(ring_steps(cut_at(rank, tokens, parts), causal));
  return all;
}

std::vector<int64_t> positions(const TokenCut& cut) {
  std::vector<int64_t> out;
  for (const auto& [begin, count] : cut.spans())
    for (int64_t i = 0; i < count; ++i) out.push_back(begin + i);
  return out;
}

using Pair = std::pair<int64_t, int64_t>;  // query and key, tokens of the sequence

// Runs the steps of all ranks on symbols: whose keys a rank has in a step, and what a sum of gradients holds, follows
// from what ranks pass on, whatever the steps say.
class RingOnSymbols {
 public:
  RingOnSymbols(const Steps& all, int64_t tokens, int64_t row)
      : all_(all), tokens_(tokens), row_(row), parts_(static_cast<int>(all.size())), sums_(all.size()) {
    for (int rank = 0; rank < parts_; ++rank) keys_of_.push_back(rank);
  }

  // Returns what goes wrong on the way; empty if nothing does.
  std::string run() {
    for (size_t step = 0; step < longest(); ++step) {
      for (int rank = 0; rank < parts_; ++rank) {
        const auto& own = all_[static_cast<size_t>(rank)];
        if (step >= own.size()) continue;
        if (own[step].owner != keys_of_[static_cast<size_t>(rank)])
          return "rank " + std::to_string(rank) + " takes its keys for those of another rank";
        compute(rank, own[step]);
      }
      if (const std::string wrong = pass_on(step, &RingStep::passes_keys, keys_of_); !wrong.empty()) return wrong;
      if (const std::string wrong = pass_on(step, &RingStep::passes_gradients, sums_); !wrong.empty()) return wrong;
    }
    return "";
  }
  // How often each pair was computed, and how often its gradient is in the sum that its key's rank has in the end.
  std::map<Pair, int> computed;
  std::map<Pair, int> came_home() const {
    std::map<Pair, int> all;
    for (int rank = 0; rank < parts_; ++rank) {
      const std::vector<int64_t> own = positions(cut_at(rank, tokens_, parts_));
      const std::set<int64_t> keys(own.begin(), own.end());
      for (const auto& [pair, times] : sums_[static_cast<size_t>(rank)])
        all[pair] += keys.contains(pair.second) ? times : 1000;  // a sum of other keys
    }
    return all;
  }

 private:
  size_t longest() const {
    size_t most = 0;
    for (const auto& steps : all_) most = std::max(most, steps.size());
    return most;
  }
  void compute(int rank, const RingStep& step) {
    const std::vector<int64_t> queries = positions(cut_at(rank, tokens_, parts_)),
                               keys = positions(cut_at(step.owner, tokens_, parts_));
    for (const RingPairs& range : step.pairs) {
      if (range.row != row_) continue;
      for (int64_t q = range.query; q < range.query + range.queries; ++q) {
        for (int64_t k = range.key; k < range.key + range.keys; ++k) {
          if (range.causal && k - range.key > q - range.query) continue;
          const Pair pair = {queries.at(static_cast<size_t>(q)), keys.at(static_cast<size_t>(k))};
          ++computed[pair];
          ++sums_[static_cast<size_t>(rank)][pair];
        }
      }
    }
  }
  // Each rank's goes to the next; who gives must get, or somebody waits for a message for ever.
  template <class Value>
  std::string pass_on(size_t step, bool RingStep::*passes, std::vector<Value>& values) {
    int passing = 0;
    for (const auto& steps : all_) passing += step < steps.size() && steps[step].*passes ? 1 : 0;
    if (passing > 0 && passing < parts_) return "ranks wait for a message in step " + std::to_string(step);
    if (passing == parts_) std::rotate(values.begin(), values.end() - 1, values.end());
    return "";
  }

  const Steps& all_;
  int64_t tokens_, row_;
  int parts_;
  std::vector<int> keys_of_;               // by rank: whose keys it has
  std::vector<std::map<Pair, int>> sums_;  // by rank: of the gradients that it has
};

// Returns the first thing wrong with the steps; empty where they compute attention, and bring the gradients home.
// Of packed sequences, the pairs of one of them, whose tokens are of these documents.
std::string first_wrong(const Steps& all, int64_t tokens, bool causal, int64_t row = -1,
                        const std::vector<TokenSpan>& documents = {}) {
  const auto document_of = [&](int64_t token) {
    size_t found = 0;
    while (found + 1 < documents.size() && documents[found + 1].begin <= token) ++found;
    return found;
  };
  RingOnSymbols ring(all, tokens, row);
  if (const std::string wrong = ring.run(); !wrong.empty()) return wrong;
  std::map<Pair, int> home = ring.came_home();
  for (int64_t q = 0; q < tokens; ++q) {
    for (int64_t k = 0; k < tokens; ++k) {
      const bool allowed = !(causal && k > q) && document_of(q) == document_of(k);
      const int expected = allowed ? 1 : 0, found = ring.computed[{q, k}];
      const std::string pair = "query " + std::to_string(q) + " meets key " + std::to_string(k);
      if (found != expected) return pair + " " + std::to_string(found) + " times";
      if (home[{q, k}] != expected) return "of " + pair + " the gradient does not come home";
    }
    // Keys of padding are met by none of the tokens.
    for (const auto& [pair, count] : ring.computed)
      if (pair.first == q && pair.second >= tokens) return "query " + std::to_string(q) + " meets padding";
  }
  return "";
}

TEST(RingSteps, ComputeEachPairThatTheMaskAllowsOnce) {
  for (const int parts : {1, 2, 3, 4, 5, 8}) {
    for (const int64_t tokens : {1, parts, 2 * parts - 1, 2 * parts, 2 * parts + 1, 19}) {
      for (const bool causal : {true, false})
        EXPECT_EQ(first_wrong(steps_of_all(tokens, parts, causal), tokens, causal), "")
            << parts << " ranks, " << tokens << " tokens";
    }
  }
}

// Documents of 1, 2, 3, .. tokens in one sequence, and the same from the other end in the next.
TEST(RingSteps, ComputeNoPairOfTwoDocuments_AndEachOther) {
  for (const int parts : {1, 2, 3, 5}) {
    for (const int64_t tokens : {1, 2 * parts - 1, 2 * parts, 19}) {
      std::vector<int64_t> begins;
      for (int64_t begin = 0, length = 1; begin < tokens; begin += length++) begins.push_back(begin);
      std::set<int64_t> second = {tokens};
      for (int64_t end = tokens, length = 1; end > 0; end -= length++) second.insert(tokens + end - 1);
      begins.insert(begins.end(), second.begin(), second.end());
      for (const bool causal : {true, false}) {
        Steps all;
        for (int rank = 0; rank < parts; ++rank)
          all.push_back(ring_steps_of_documents(cut_at(rank, tokens, parts), causal, begins, 2));
        for (const int64_t row : {0, 1})
          EXPECT_EQ(first_wrong(all, tokens, causal, row, documents_of(begins, row, tokens)), "")
              << parts << " ranks, " << tokens << " tokens, row " << row << ", causal " << causal;
        if (tokens == 1) continue;
        EXPECT_NE(first_wrong(all, tokens, causal, 0), "") << "pairs of two documents are missing";
      }
    }
  }
}

TEST(RingSteps, MutantsDoNotProve) {
  constexpr int kParts = 3;
  constexpr int64_t kTokens = 12;
  for (const bool causal : {true, false}) {
    const Steps all = steps_of_all(kTokens, kParts, causal);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (size_t step = 0; step < all[rank].size(); ++step) {
        const auto proves = [&](const auto& change) {
          Steps mutant = all;
          change(mutant[rank]);
          return first_wrong(mutant, kTokens, causal).empty();
        };
        using Own = std::vector<RingStep>;
        const auto at = static_cast<std::ptrdiff_t>(step);
        EXPECT_FALSE(proves([&](Own& own) { own[step].pairs.clear(); })) << "a step is left out";
        EXPECT_FALSE(proves([&](Own& own) { own.erase(own.begin() + at); })) << "and the next take its keys";
        EXPECT_FALSE(proves([&](Own& own) {
          const RingPairs again = own[step].pairs[0];
          own[step].pairs.push_back(again);
        })) << "pairs are taken twice";
        EXPECT_FALSE(proves([&](Own& own) { own.push_back(own[step]); })) << "a step is taken twice";
        EXPECT_FALSE(proves([&](Own& own) { own[step].owner = (own[step].owner + 1) % kParts; })) << "of another rank";
        EXPECT_FALSE(proves([&](Own& own) { own[step].passes_keys ^= true; })) << "keys are kept, or sent once more";
        EXPECT_FALSE(proves([&](Own& own) { own[step].passes_gradients = false; })) << "gradients are kept";
        const auto all_prove = [&](const auto& change) {
          Steps mutant = all;
          for (Own& own : mutant) change(own[step]);
          return first_wrong(mutant, kTokens, causal).empty();
        };
        EXPECT_FALSE(all_prove([](RingStep& own) { own.passes_gradients = false; })) << "instead of sent home";
        EXPECT_TRUE(step + 1 < kParts || all_prove([](RingStep& own) { own.passes_keys ^= true; })) << "to nobody";
        EXPECT_FALSE(step + 1 < kParts && all_prove([](RingStep& own) { own.passes_keys ^= true; })) << "all keep keys";
        const auto& others = all[rank][(step + 1) % kParts].pairs;
        if (others == all[rank][step].pairs) continue;
        EXPECT_FALSE(proves([&](Own& own) { own[step].pairs = others; })) << "with the pairs of another step";
      }
    }
  }
}

int64_t num_pairs(const RingStep& step) {
  int64_t pairs = 0;
  for (const RingPairs& range : step.pairs)
    pairs += range.causal ? range.queries * (range.queries + 1) / 2 : range.queries * range.keys;
  return pairs;
}

TEST(RingSteps, GiveAllRanksAsMuchInEveryStep_UnderTheCausalMask) {
  for (const int parts : {2, 3, 4, 8}) {
    const int64_t tokens = 16 * parts, own = tokens / parts;
    for (const auto& steps : steps_of_all(tokens, parts, true)) {
      for (size_t step = 0; step < steps.size(); ++step) {
        EXPECT_EQ(num_pairs(steps[step]), step == 0 ? own * (own + 1) / 2 : own * own / 2);
      }
    }
  }
}

// FLOPs of attention go by pairs: whatever the tokens, no rank has more than the mean. A range of tokens each, in
// order, would leave the last rank with S(S+1)/2 + (P-1) S^2 pairs, (2P-1)/P of the mean.
TEST(RingSteps, GiveTheSlowestRankTheMeanOfAllRanks) {
  for (const int parts : {2, 3, 4, 7}) {
    for (const int64_t tokens : {int64_t{512}, int64_t{512} + parts, int64_t{509}}) {
      const int64_t S = cut_at(0, tokens, parts).size();
      std::vector<double> of_ranks;
      for (const auto& steps : steps_of_all(tokens, parts, true)) {
        of_ranks.push_back(0);
        for (const RingStep& step : steps) of_ranks.back() += static_cast<double>(num_pairs(step));
      }
      const double all = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
      EXPECT_EQ(*std::max_element(of_ranks.begin(), of_ranks.end()) * parts, all) << parts << " ranks, " << tokens;
      const auto last_in_order = static_cast<double>(S * (S + 1) / 2 + (parts - 1) * S * S);
      EXPECT_NEAR(last_in_order * parts / all, (2.0 * parts - 1) / parts, 2.0 / static_cast<double>(S));
    }
  }
}

// A range of tokens each, in order, would leave the last rank with about twice the mean.
TEST(RingSteps, ReadAZigzagOffEachRank) {
  EXPECT_EQ(positions(cut_at(0, 8, 2)), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(positions(cut_at(1, 8, 2)), (std::vector<int64_t>{2, 3, 4, 5}));
}

}  // namespace
}  // namespace herd::nn
