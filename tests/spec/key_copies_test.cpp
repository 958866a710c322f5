#include "herd/spec/key_copies.h"

#include <gtest/gtest.h>

namespace herd::spec {
namespace {

int copies_of(int64_t heads, int64_t kv_heads, int64_t tp) {
  RunFile run;
  run.model.heads = heads;
  run.model.kv_heads = kv_heads;
  run.mesh.tp = tp;
  return key_copies(run);
}

TEST(KeyCopies, CountsTheRanksOfEachKeyHead_WhereRanksOutnumberThem) {
  EXPECT_EQ(copies_of(8, 2, 8), 4);
  EXPECT_EQ(copies_of(8, 2, 4), 2);
  EXPECT_EQ(copies_of(8, 1, 2), 2);
}

TEST(KeyCopies, IsOne_WhereEachRankHasHeadsOfItsOwn) {
  EXPECT_EQ(copies_of(8, 4, 4), 1);
  EXPECT_EQ(copies_of(8, 4, 2), 1);
  EXPECT_EQ(copies_of(8, 0, 8), 1) << "each head has keys of its own";
}

}  // namespace
}  // namespace herd::spec
