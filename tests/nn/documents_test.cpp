#include "herd/nn/documents.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

namespace herd::nn {
namespace {

std::vector<std::pair<int64_t, int64_t>> pairs_of(const std::vector<TokenSpan>& spans) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const auto& [begin, count] : spans) out.emplace_back(begin, count);
  return out;
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

// Two sequences of 10 tokens: documents of 3, 6 and 1 tokens, and of 10.
const std::vector<int64_t> kPackedBegins = {0, 3, 9, 10};

TEST(Documents, AreSpansOfTheirSequence) {
  EXPECT_EQ(pairs_of(documents_of(kPackedBegins, 0, 10)), (Pairs{{0, 3}, {3, 6}, {9, 1}}));
  EXPECT_EQ(pairs_of(documents_of(kPackedBegins, 1, 10)), (Pairs{{0, 10}}));
}

TEST(Documents, PositionsRestartInEach) {
  const at::Tensor positions = document_positions_tensor({.document_begins = kPackedBegins}, 2, {.tokens = 10});
  const at::Tensor whole = at::arange(10, at::kLong);
  const at::Tensor first = at::cat({whole.narrow(0, 0, 3), whole.narrow(0, 0, 6), whole.narrow(0, 0, 1)});
  EXPECT_TRUE(positions[0].equal(first));
  EXPECT_TRUE(positions[1].equal(whole));
}

// Whichever ranks share the tokens, each has the positions of its own tokens, and finds the documents among them.
TEST(Documents, LieInOneRangeOfEachRanksTokens) {
  const at::Tensor whole = document_positions_tensor({.document_begins = kPackedBegins}, 2, {.tokens = 10});
  for (const bool zigzag : {false, true}) {
    for (int parts = 1; parts <= 4; ++parts) {
      for (int place = 0; place < parts; ++place) {
        const TokenCut cut{.tokens = 10, .place = place, .parts = parts, .zigzag = zigzag};
        const at::Tensor own = document_positions_tensor({.document_begins = kPackedBegins}, 2, cut);
        const at::Tensor expected = own_columns(whole, cut, -1), is_padding = expected < 0;
        EXPECT_TRUE(own.masked_fill(is_padding, -1).equal(expected)) << parts << " " << place << " " << zigzag;
        const at::Tensor tokens = own_columns(at::arange(10, at::kLong).unsqueeze(0), cut, 1000)[0];
        int64_t found = 0;
        const auto documents = documents_of(kPackedBegins, 0, 10);
        for (size_t i = 0; i < documents.size(); ++i) {
          const bool is_last = i + 1 == documents.size();
          const TokenSpan part = own_part(documents[i], is_last, cut);
          found += part.count;
          const at::Tensor of_part = tokens.narrow(0, part.begin, part.count);
          EXPECT_TRUE(of_part.ge(documents[i].begin).all().item<bool>());
          EXPECT_TRUE(is_last || of_part.lt(documents[i].begin + documents[i].count).all().item<bool>());
        }
        EXPECT_EQ(found, cut.size());
      }
    }
  }
}

}  // namespace
}  // namespace herd::nn
