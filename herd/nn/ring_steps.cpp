#include "herd/nn/ring_steps.h"

#include <algorithm>

#include "herd/base/check.h"

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

}  // namespace

std::vector<RingStep> ring_steps(const TokenCut& cut, bool causal) {
  HERD_CHECK(cut.zigzag, "a ring of attention takes a zigzag of tokens");
  std::vector<RingStep> steps;
  for (int step = 0; step < cut.parts; ++step) {
    const int owner = (cut.place - step + cut.parts) % cut.parts;
    steps.push_back({owner, pairs_of(cut, owner, causal)});
  }
  return steps;
}

TokenCut cut_of(TokenCut cut, int place) {
  cut.place = place;
  return cut;
}

}  // namespace herd::nn
