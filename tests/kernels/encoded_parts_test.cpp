#include "herd/kernels/encoded_parts.h"

#include <gtest/gtest.h>

namespace herd::kernels {
namespace {

TEST(EncodedParts, CoverTheArrayInWholeBlocks) {
  for (const CodecRow& row : codecs()) {
    for (const int n : {1, 2, 3, 4, 9}) {
      for (const int64_t elements : {0, 1, 255, 256, 257, 1024, 5000, 100001}) {
        const EncodedParts parts{{.kind = row.kind}, elements, n};
        if (parts.is_sparse()) continue;
        int64_t end = 0, bytes = 0;
        for (int rank = 0; rank < n; ++rank) {
          EXPECT_EQ(parts.part(rank).begin, end);
          EXPECT_TRUE(end % 256 == 0 || end == elements);
          end = parts.part(rank).end;
          bytes += parts.part_bytes(rank);
          EXPECT_LE(n * parts.part_bytes(rank), parts.incoming_bytes());
        }
        EXPECT_EQ(end, elements);
        EXPECT_EQ(bytes, parts.message_bytes());
      }
    }
  }
}

TEST(EncodedParts, SendTheBytesOfTheEquation) {
  const int64_t m = 1 << 20;
  for (const int n : {2, 4, 8}) {
    const EncodedParts int8{{.kind = CodecKind::kInt8}, m, n}, top{{.kind = CodecKind::kTopK}, m, n};
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_EQ(int8.sent_bytes(rank), 2 * (n - 1) * (m / n + m / n / 256 * 4));
      EXPECT_EQ(top.sent_bytes(rank), (n - 1) * 8 * 10486);
    }
    EXPECT_EQ(int8.residual_elements(), m + m / n);
    EXPECT_EQ(top.residual_elements(), m);
    EXPECT_EQ(top.incoming_bytes(), n * top.message_bytes());
  }
}

}  // namespace
}  // namespace herd::kernels
