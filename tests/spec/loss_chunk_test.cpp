#include "herd/spec/loss_chunk.h"

#include <gtest/gtest.h>

namespace herd::spec {
namespace {

TEST(LossChunk, HoldsLogitsInEqualPiecesOfAtMost64MiB) {
  EXPECT_EQ(loss_chunk_rows(50257, 512), 256);  // 333 rows would fit: two pieces
  EXPECT_EQ(loss_chunk_rows(32000, 16384, /*on_device=*/true), 4096);
  EXPECT_EQ(loss_chunk_rows(100, 512), 512);
  EXPECT_EQ(loss_chunk_rows(int64_t{1} << 40, 3), 1);
}

}  // namespace
}  // namespace herd::spec
