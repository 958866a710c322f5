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

std::vector<TokenRow> token_rows(int64_t rows, const std::vector<int64_t>& samples, const TokenCut& cut,
                                 int64_t first_row) {
  std::vector<int64_t> tokens;  // that the rank has of a sample
  for (const auto& [begin, count] : cut.spans()) {
    for (int64_t token = begin; token < begin + count; ++token) tokens.push_back(token);
  }
  std::vector<TokenRow> out(static_cast<size_t>(rows));
  const int64_t each = std::ssize(tokens), there = std::min(rows, std::ssize(samples) * each - first_row);
  for (int64_t row = 0; row < there; ++row) {
    const int64_t sample = samples[static_cast<size_t>((first_row + row) / each)];
    const int64_t token = tokens[static_cast<size_t>((first_row + row) % each)];
    if (sample >= 0 && token < cut.tokens) out[static_cast<size_t>(row)] = {sample, token};
  }
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
