// Follows each row of a token and an expert through the exchange of all ranks together: it comes to its expert once, in
// the order (expert, source, token), and its output goes back to its token's slot. Counts that are swapped, a row for
// another expert, and a slot that is added twice are found.
#include "herd/nn/expert_exchange.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "herd/nn/expert_rows_internal.h"

namespace herd::nn {
namespace {

struct SentRow {
  int64_t expert = 0, source = 0, token = 0, slot = 0;
  auto operator<=>(const SentRow&) const = default;
};

struct ExchangingRanks {
  int64_t experts = 0, top_k = 0;
  std::vector<std::vector<int64_t>> chosen;  // by rank: the experts of its tokens, top_k of each
  std::vector<std::vector<int64_t>> slots;   // by rank: where each slot of its tokens finds its row among those sorted
  std::vector<std::vector<SentRow>> rows;    // by rank: sorted, as it sends them
  std::vector<ExpertExchange> exchanges;     // by rank
};

ExchangingRanks ranks_of(const std::vector<std::vector<int64_t>>& chosen, int64_t experts, int64_t top_k) {
  ExchangingRanks out{experts, top_k, chosen, {}, {}, {}};
  std::vector<int64_t> counts;
  for (size_t rank = 0; rank < chosen.size(); ++rank) {
    const int64_t N = static_cast<int64_t>(chosen[rank].size()) / top_k;
    const at::Tensor experts_Nk = at::tensor(chosen[rank], at::kLong).view({N, top_k});
    const RowOrder order = order_rows(experts_Nk, experts);
    const int64_t *begins = order.begins.const_data_ptr<int64_t>(), *slots = order.rows_Nk.const_data_ptr<int64_t>();
    for (int64_t e = 0; e < experts; ++e) counts.push_back(begins[e + 1] - begins[e]);
    out.slots.emplace_back(slots, slots + N * top_k);
    std::vector<SentRow>& rows = out.rows.emplace_back(chosen[rank].size());
    for (int64_t i = 0; i < N * top_k; ++i)
      rows[static_cast<size_t>(slots[i])] = {chosen[rank][static_cast<size_t>(i)], static_cast<int64_t>(rank),
                                             i / top_k, i % top_k};
  }
  const int P = static_cast<int>(chosen.size());
  for (int rank = 0; rank < P; ++rank) out.exchanges.push_back(expert_exchange(counts, P, rank));
  return out;
}

// Sends segments of each rank's rows to the ranks in their order. Returns false where sizes do not fit.
bool deliver(const std::vector<std::vector<SentRow>>& from, const std::vector<std::vector<int64_t>>& sent,
             const std::vector<std::vector<int64_t>>& received, std::vector<std::vector<SentRow>>& to) {
  to.assign(from.size(), {});
  for (size_t target = 0; target < from.size(); ++target) {
    for (size_t source = 0; source < from.size(); ++source) {
      if (sent[source][target] != received[target][source]) return false;
      const auto begin = from[source].begin() +
                         std::accumulate(sent[source].begin(), sent[source].begin() + static_cast<long>(target), 0L);
      if (from[source].end() - begin < sent[source][target]) return false;
      to[target].insert(to[target].end(), begin, begin + sent[source][target]);
    }
  }
  return true;
}

// Returns the first thing wrong with the exchange; empty where every slot gets the output of its expert.
std::string first_wrong_row(const ExchangingRanks& ranks) {
  const auto P = ranks.exchanges.size();
  const int64_t held = ranks.experts / static_cast<int64_t>(P);
  std::vector<std::vector<int64_t>> sent, received;
  for (const ExpertExchange& exchange : ranks.exchanges)
    sent.push_back(exchange.sent), received.push_back(exchange.received);
  std::vector<std::vector<SentRow>> come, back;
  if (!deliver(ranks.rows, sent, received, come)) return "a message of another size";
  for (size_t rank = 0; rank < P; ++rank) {
    const std::vector<int64_t>& experts = ranks.exchanges[rank].experts;
    if (experts.size() != come[rank].size()) return "rows without an expert";
    std::vector<std::vector<SentRow>> by_expert(static_cast<size_t>(held));
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] + held * static_cast<int64_t>(rank) != come[rank][i].expert) return "a row at another expert";
      by_expert.at(static_cast<size_t>(experts[i])).push_back(come[rank][i]);
    }
    for (const auto& rows : by_expert)
      if (!std::is_sorted(rows.begin(), rows.end())) return "rows out of the order (source, token)";
  }
  if (!deliver(come, received, sent, back)) return "outputs of another size";
  for (size_t rank = 0; rank < P; ++rank) {
    for (size_t i = 0; i < ranks.slots[rank].size(); ++i) {
      const SentRow& row = back[rank].at(static_cast<size_t>(ranks.slots[rank][i]));
      const auto at = static_cast<int64_t>(i);
      if (row != SentRow{ranks.chosen[rank][i], static_cast<int64_t>(rank), at / ranks.top_k, at % ranks.top_k})
        return "a slot with the output of another row";
    }
  }
  return "";
}

// So many tokens on each rank, each of which chooses different experts.
ExchangingRanks drawn_ranks(uint64_t seed, const std::vector<int64_t>& tokens, int64_t experts, int64_t top_k) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int64_t>> chosen;
  for (const int64_t N : tokens) {
    std::vector<int64_t>& own = chosen.emplace_back();
    for (int64_t n = 0; n < N; ++n) {
      std::shuffle(all.begin(), all.end(), random);
      own.insert(own.end(), all.begin(), all.begin() + top_k);
    }
  }
  return ranks_of(chosen, experts, top_k);
}

TEST(ExpertExchange, BringsEachRowToItsExpertAndBackToItsSlot) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(first_wrong_row(drawn_ranks(seed, {9}, 4, 2)), "");
    EXPECT_EQ(first_wrong_row(drawn_ranks(seed, {5, 7}, 4, 2)), "");
    EXPECT_EQ(first_wrong_row(drawn_ranks(seed, {3, 0, 11}, 6, 3)), "") << "a rank without tokens";
    EXPECT_EQ(first_wrong_row(drawn_ranks(seed, {1, 0, 0, 1, 0, 0, 0, 0}, 8, 2)), "") << "fewer tokens than ranks";
    EXPECT_EQ(first_wrong_row(drawn_ranks(seed, {4, 4, 4, 4}, 4, 4)), "") << "all tokens to all experts";
  }
  EXPECT_EQ(first_wrong_row(drawn_ranks(1, {0, 0}, 4, 2)), "") << "no tokens at all";
  EXPECT_EQ(first_wrong_row(ranks_of({{2, 2, 2}, {2, 2}}, 4, 1)), "") << "all tokens to one expert";
}

TEST(ExpertExchange, MutantsAreFound) {
  const ExchangingRanks ranks = drawn_ranks(4, {6, 5, 7, 3}, 8, 3);
  ASSERT_EQ(first_wrong_row(ranks), "");
  const auto expect_found = [&](const char* what,
                                const std::function<bool(ExchangingRanks&, size_t rank, size_t i)>& change) {
    int mutants = 0;
    for (size_t rank = 0; rank < 4; ++rank) {
      for (size_t i = 0; i < 3; ++i) {
        ExchangingRanks mutant = ranks;
        if (!change(mutant, rank, i)) continue;
        ++mutants;
        EXPECT_NE(first_wrong_row(mutant), "") << what << " on rank " << rank << " at " << i;
      }
    }
    EXPECT_GT(mutants, 6) << what;
  };
  const auto swapped = [](std::vector<int64_t>& list, size_t i) {
    if (list.size() < i + 2 || list[i] == list[i + 1]) return false;
    std::swap(list[i], list[i + 1]);
    return true;
  };
  expect_found("counts of what is sent are swapped",
               [&](ExchangingRanks& m, size_t rank, size_t i) { return swapped(m.exchanges[rank].sent, i); });
  expect_found("counts of what comes are swapped",
               [&](ExchangingRanks& m, size_t rank, size_t i) { return swapped(m.exchanges[rank].received, i); });
  expect_found("a row is for another expert", [&](ExchangingRanks& m, size_t rank, size_t i) {
    m.exchanges[rank].experts.at(i) = 1 - m.exchanges[rank].experts.at(i);
    return true;
  });
  expect_found("a slot is added twice", [&](ExchangingRanks& m, size_t rank, size_t i) {
    m.slots[rank].at(i) = m.slots[rank].at(i + 1);
    return true;
  });
}

// Rows between hosts come by one relay each, which has counts of them, and the ranks of a host take turns.
TEST(HostExchange, NamesOneRelayForTheTokensOfASourceAndAHost) {
  constexpr int64_t kManyExperts = 14;
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 0, 1, 1, 2, 2, 2}, {0, 1, 0, 1, 0, 1, 0}, {0, 0, 0, 0, 0, 0, 1}}) {
    const auto P = static_cast<int>(hosts.size()), H = *std::ranges::max_element(hosts) + 1;
    std::vector<int64_t> counts(static_cast<size_t>(P * kManyExperts)), tokens(static_cast<size_t>(P * H));
    std::iota(counts.begin(), counts.end(), 1);
    std::iota(tokens.begin(), tokens.end(), 1000);
    std::vector<HostExchange> ranks;
    for (int rank = 0; rank < P; ++rank)
      ranks.push_back(host_exchange(host_routes(hosts, rank), counts, tokens, hosts));
    for (int source = 0; source < P; ++source) {
      for (int target = 0; target < P; ++target) {
        const bool same_host = hosts[static_cast<size_t>(source)] == hosts[static_cast<size_t>(target)];
        const int from = ranks[static_cast<size_t>(target)].from.at(static_cast<size_t>(source));
        const auto& neighbors = ranks[static_cast<size_t>(source)].neighbors;
        EXPECT_EQ(std::ranges::count(neighbors, target), same_host ? 1 : 0);
        if (same_host) {
          EXPECT_EQ(from, source);
          continue;
        }
        const auto& parcels = ranks[static_cast<size_t>(from)].relayed;
        const auto of_source = std::ranges::find(parcels, source, &TokenParcel::source);
        ASSERT_NE(of_source, parcels.end());
        EXPECT_EQ(std::ranges::count(ranks[static_cast<size_t>(source)].sent, *of_source), 1);
        EXPECT_EQ(of_source->tokens, tokens[static_cast<size_t>(source * H + hosts[static_cast<size_t>(target)])]);
        const auto place = std::ranges::find(of_source->ranks, target) - of_source->ranks.begin();
        const int64_t first = counts[static_cast<size_t>(source * kManyExperts + target * 2)];
        EXPECT_EQ(of_source->rows.at(static_cast<size_t>(place)), 2 * first + 1);
      }
    }
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      const auto of_host = std::ranges::count(hosts, hosts[rank]);
      EXPECT_LE(static_cast<int64_t>(ranks[rank].relayed.size()), (P - of_host) / of_host + H);
      EXPECT_EQ(static_cast<int>(ranks[rank].sent.size()), H - 1);
    }
  }
}

}  // namespace
}  // namespace herd::nn
