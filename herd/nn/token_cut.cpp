#include "herd/nn/token_cut.h"

#include <ATen/ops/full.h>

#include <algorithm>

namespace herd::nn {
namespace {

constexpr int64_t kRangesOfZigzag = 2;  // ranges of tokens of each rank

int64_t range_size(const TokenCut& cut) {
  const int64_t ranges = cut.parts * (cut.zigzag ? kRangesOfZigzag : 1);
  return (cut.tokens + ranges - 1) / ranges;
}

}  // namespace

int64_t TokenCut::size() const { return range_size(*this) * (zigzag ? kRangesOfZigzag : 1); }

std::vector<TokenSpan> TokenCut::spans() const {
  const int64_t range = range_size(*this);
  std::vector<TokenSpan> out = {{place * range, range}};
  if (zigzag) out.push_back({(kRangesOfZigzag * parts - 1 - place) * range, range});
  return out;
}

at::Tensor own_columns(const at::Tensor& whole_BT, const TokenCut& cut, int64_t padding) {
  const at::Tensor own = at::full({whole_BT.size(0), cut.size()}, padding, whole_BT.options());
  int64_t at = 0;
  for (const auto& [begin, count] : cut.spans()) {
    const int64_t there = std::clamp<int64_t>(cut.tokens - begin, 0, count);
    if (there > 0) own.narrow(1, at, there).copy_(whole_BT.narrow(1, begin, there));
    at += count;
  }
  return own;
}

}  // namespace herd::nn
