#include "herd/nn/documents.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "herd/base/check.h"

namespace herd::nn {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

int64_t end_of(const TokenSpan& document, bool is_last) { return is_last ? kNoEnd : document.begin + document.count; }

}  // namespace

std::vector<TokenSpan> documents_of(const std::vector<int64_t>& begins, int64_t row, int64_t T) {
  const auto first = std::lower_bound(begins.begin(), begins.end(), row * T);
  const auto last = std::lower_bound(first, begins.end(), (row + 1) * T);
  HERD_CHECK(first != last && *first == row * T, "each sequence begins a document");
  std::vector<TokenSpan> out;
  for (auto at = first; at != last; ++at) {
    const int64_t end = at + 1 == last ? (row + 1) * T : *(at + 1);
    out.push_back({*at - row * T, end - *at});
  }
  return out;
}

std::vector<std::vector<TokenSpan>> document_positions(const Context& context, int64_t B, const TokenCut& cut) {
  std::vector<std::vector<TokenSpan>> out(static_cast<size_t>(B));
  for (int64_t row = 0; row < B; ++row) {
    const std::vector<TokenSpan> documents = documents_of(context.document_begins, row, cut.tokens);
    for (const auto& [begin, count] : cut.spans()) {
      for (size_t i = 0; i < documents.size(); ++i) {
        const TokenSpan& document = documents[i];
        const int64_t first = std::max(begin, document.begin),
                      end = std::min(begin + count, end_of(document, i + 1 == documents.size()));
        if (first < end) out[static_cast<size_t>(row)].push_back({first - document.begin, end - first});
      }
    }
  }
  return out;
}

at::Tensor document_positions_tensor(const Context& context, int64_t B, const TokenCut& cut, c10::Device device) {
  const at::Tensor positions = at::empty({B, cut.size()}, at::TensorOptions(at::kLong).device(device));
  int64_t at = 0;
  for (const auto& spans : document_positions(context, B, cut)) {
    for (const auto& [begin, count] : spans) {
      at::Tensor own = positions.view(-1).narrow(0, at, count);
      at::arange_out(own, begin, begin + count, 1);
      at += count;
    }
  }
  return positions;
}

TokenSpan own_part(const TokenSpan& document, bool is_last, const TokenCut& cut) {
  TokenSpan own;
  int64_t at = 0;
  for (const auto& [begin, count] : cut.spans()) {
    const int64_t first = std::max(begin, document.begin), end = std::min(begin + count, end_of(document, is_last));
    if (first < end) {
      if (own.count == 0) own.begin = at + first - begin;
      own.count += end - first;
    }
    at += count;
  }
  return own;
}

}  // namespace herd::nn
