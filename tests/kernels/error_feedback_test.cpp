// What encoding loses comes with what is encoded later, part by part as of the whole.
#include "herd/kernels/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "herd/kernels/sum_of_squares.h"
#include "tests/kernels/codec_inputs.h"

namespace herd::kernels {
namespace {

constexpr int64_t kElements = 1000;
const std::vector<ElementRange> kExact = {{0, 3}, {300, 400}};

struct Encoded {
  std::vector<float> decoded = {};
  EncodingLoss loss = {};
};

// Encodes in parts that end at `ends`, and decodes.
Encoded encode_parts(const CodecSettings& codec, const std::vector<float>& terms, const std::vector<int64_t>& ends,
                     std::vector<float>& residual) {
  std::vector<std::vector<std::byte>> messages;
  std::vector<EncodedPart> parts;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    messages.emplace_back(static_cast<size_t>(encoded_bytes(codec, end - begin)));
    parts.push_back({{begin, end}, messages.back().data()});
    begin = end;
  }
  Encoded out{.decoded = std::vector<float>(terms.size())};
  out.loss = encode_with_feedback(codec, terms, kExact, parts, residual);
  for (const EncodedPart& part : parts)
    decode(codec, part.encoded, part.range.size(), out.decoded.data() + part.range.begin);
  return out;
}

TEST(ErrorFeedback, KeepsWhatIsLost_ForTheNextTime) {
  for (const CodecRow& row : codecs()) {
    const CodecSettings codec{.kind = row.kind, .ratio = 0.05};
    const std::vector<float> terms = heavy_tailed(kElements);
    std::vector<float> residual(terms.size());
    std::vector<double> brought(terms.size());
    const int times = 5;
    for (int time = 0; time < times; ++time) {
      const Encoded encoded = encode_parts(codec, terms, {kElements}, residual);
      for (size_t i = 0; i < terms.size(); ++i) brought[i] += encoded.decoded[i];
      EXPECT_EQ(encoded.loss.lost_squares, sum_of_squares(residual.data(), kElements)) << row.name;
      EXPECT_LE(encoded.loss.lost_squares, encoded.loss.squares) << row.name;
      EXPECT_GT(encoded.loss.lost_squares, 0) << row.name;
    }
    for (size_t i = 0; i < terms.size(); ++i) {
      const bool exact = std::ranges::any_of(kExact, [&](const ElementRange& range) {
        return static_cast<int64_t>(i) >= range.begin && static_cast<int64_t>(i) < range.end;
      });
      const double expected = exact ? 0 : times * double{terms[i]};
      ASSERT_NEAR(brought[i] + residual[i], expected, 1e-5 * std::abs(expected)) << row.name << " " << i;
      ASSERT_TRUE(!exact || residual[i] == 0) << row.name << " " << i;
    }
  }
}

TEST(ErrorFeedback, GivesTheSameNumbersInPartsOfWholeBlocks) {
  for (const CodecKind kind : {CodecKind::kBf16, CodecKind::kInt8, CodecKind::kInt4}) {
    const std::vector<float> terms = heavy_tailed(kElements);
    std::vector<float> whole(terms.size()), parts(terms.size());
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(encode_parts({.kind = kind}, terms, {kElements}, whole).decoded,
                encode_parts({.kind = kind}, terms, {256, 256, 768, kElements}, parts).decoded);
      EXPECT_EQ(whole, parts);
    }
  }
}

}  // namespace
}  // namespace herd::kernels
