#include "herd/nn/ring_steps.h"

#include <algorithm>

#include "herd/base/check.h"
#include "herd/nn/documents.h"

namespace herd::nn {
namespace {

std::vector<RingPairs> pairs_of(const TokenCut& cut, int owner, bool causal) {
  const int64_t S = cut.size(), half = S / 2;
  if (causal) {
    if (owner == cut.place) return {{0, S, 0, S, true}};
    if (owner < cut.place) return {{0, S, 0, half, false}};
    return {{half, half, 0, S, false}};
  }
  std::vector<RingPairs> out;
  int64_t key = 0;
  for (const auto& [begin, count] : cut_of(cut, owner).spans()) {  // keys of padding are left out
    const int64_t keys = std::clamp<int64_t>(cut.tokens - begin, 0, count);
    if (keys > 0) out.push_back({0, S, key, keys, false});
    key += count;
  }
  return out;
}

// Returns the common part of two ranges; empty if there is none.
TokenSpan common(const TokenSpan& a, const TokenSpan& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.begin + a.count, b.begin + b.count);
  return {begin, std::max<int64_t>(0, end - begin)};
}

}  // namespace

std::vector<RingStep> ring_steps_of_documents(const TokenCut& cut, bool causal, const std::vector<int64_t>& begins,
                                              int64_t B) {
  std::vector<RingStep> steps = ring_steps(cut, causal);
  for (RingStep& step : steps) {
    const std::vector<RingPairs> of_all = std::move(step.pairs);
    step.pairs.clear();
    for (int64_t row = 0; row < B; ++row) {
      const std::vector<TokenSpan> documents = documents_of(begins, row, cut.tokens);
      for (size_t i = 0; i < documents.size(); ++i) {
        const bool is_last = i + 1 == documents.size();
        const TokenSpan own = own_part(documents[i], is_last, cut),
                        theirs = own_part(documents[i], is_last, cut_of(cut, step.owner));
        for (const RingPairs& pairs : of_all) {
          const TokenSpan queries = common({pairs.query, pairs.queries}, own),
                          keys = common({pairs.key, pairs.keys}, theirs);
          if (queries.count > 0 && keys.count > 0)
            step.pairs.push_back({queries.begin, queries.count, keys.begin, keys.count, pairs.causal, row});
        }
      }
    }
  }
  return steps;
}

std::vector<RingStep> ring_steps(const TokenCut& cut, bool causal) {
  HERD_CHECK(cut.zigzag, "a ring of attention takes a zigzag of tokens");
  std::vector<RingStep> steps;
  for (int step = 0; step < cut.parts; ++step) {
    const int owner = (cut.place - step + cut.parts) % cut.parts;
    steps.push_back({owner, pairs_of(cut, owner, causal), step + 1 < cut.parts, cut.parts > 1});
  }
  return steps;
}

TokenCut cut_of(TokenCut cut, int place) {
  cut.place = place;
  return cut;
}

}  // namespace herd::nn
