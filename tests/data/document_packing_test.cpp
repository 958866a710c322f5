#include "herd/data/document_packing.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace herd {
namespace {

using Parts = std::vector<DocumentPart>;

Parts parts_of(const DocumentPacking& packing, int64_t sequence) {
  const auto parts = packing.parts_of(sequence);
  return {parts.begin(), parts.end()};
}

TEST(DocumentPacking, PutsEachPartIntoTheFullestSequenceWithRoom) {
  // Documents of 4, 3, 9, 2, 1 and 6 ids have 3, 2, 8, 1, 0 and 5 tokens.
  const DocumentPacking packing({4, 7, 16, 18, 19, 25}, 8);
  ASSERT_EQ(packing.sequences(), 3);
  EXPECT_EQ(parts_of(packing, 0), (Parts{{7, 8}}));
  EXPECT_EQ(parts_of(packing, 1), (Parts{{0, 3}, {19, 5}}));
  EXPECT_EQ(parts_of(packing, 2), (Parts{{4, 2}, {16, 1}}));
  EXPECT_EQ(packing.tokens(), 19);
  EXPECT_EQ(packing.documents(), 6);
  EXPECT_EQ(packing.cut_documents(), 0);
}

TEST(DocumentPacking, CutsWhatIsLongerThanTheContext) {
  const DocumentPacking packing({10}, 4);  // 9 tokens
  ASSERT_EQ(packing.sequences(), 3);
  EXPECT_EQ(parts_of(packing, 0), (Parts{{0, 4}}));
  EXPECT_EQ(parts_of(packing, 1), (Parts{{4, 4}}));
  EXPECT_EQ(parts_of(packing, 2), (Parts{{8, 1}}));
  EXPECT_EQ(packing.cut_documents(), 1);
  EXPECT_EQ(DocumentPacking({1, 2}, 4).sequences(), 0);
  EXPECT_EQ(DocumentPacking({}, 4).sequences(), 0);
}

TEST(DocumentPacking, HasEveryTokenOnce_WithLittlePadding) {
  std::mt19937 random(3);
  for (const int64_t context : {1, 7, 100, 1000}) {
    std::vector<int64_t> ends;
    int64_t end = 0, expected = 0;
    for (int i = 0; i < 2000; ++i) {
      const int64_t ids = 1 + static_cast<int64_t>(random() % 150);
      ends.push_back(end += ids);
      expected += ids - 1;
    }
    const DocumentPacking packing(ends, context);
    std::set<int64_t> targets;
    for (int64_t sequence = 0; sequence < packing.sequences(); ++sequence) {
      int64_t tokens = 0, last = -1;
      for (const auto& [begin, count] : packing.parts_of(sequence)) {
        EXPECT_GT(begin, last);
        last = begin;
        tokens += count;
        for (int64_t t = 0; t < count; ++t) targets.insert(begin + t + 1);
      }
      EXPECT_LE(tokens, context);
      EXPECT_GE(tokens, 1);
    }
    EXPECT_EQ(static_cast<int64_t>(targets.size()), expected);
    EXPECT_EQ(packing.tokens(), expected);
    EXPECT_LE(packing.sequences(), expected / context * 102 / 100 + 2) << context;
  }
}

}  // namespace
}  // namespace herd
