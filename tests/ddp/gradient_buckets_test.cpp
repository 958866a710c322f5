#include "herd/ddp/gradient_buckets.h"

#include <gtest/gtest.h>

namespace herd::ddp {
namespace {

TEST(GradientBuckets, HoldEachParameterOnceInReverseOrderWithoutOverlap) {
  const std::vector<GradientShape> shapes = {{100, DType::kF32}, {7, DType::kF32},   {1, DType::kBF16},
                                             {0, DType::kF32},   {33, DType::kBF16}, {5000, DType::kF32}};
  const auto buckets = plan_gradient_buckets(shapes, 256, 4096);
  std::vector<int> seen(shapes.size(), 0);
  for (const GradientBucket& bucket : buckets) {
    int64_t end = 0;
    for (size_t k = 0; k < bucket.parameters.size(); ++k) {
      const auto& shape = shapes[static_cast<size_t>(bucket.parameters[k])];
      ++seen[static_cast<size_t>(bucket.parameters[k])];
      EXPECT_EQ(shape.dtype, bucket.dtype);
      EXPECT_GE(bucket.offsets[k], end);
      EXPECT_EQ(bucket.offsets[k] * size_of(bucket.dtype) % 64, 0);
      end = bucket.offsets[k] + shape.elements;
      if (k > 0) {
        EXPECT_LT(bucket.parameters[k], bucket.parameters[k - 1]);
      }
    }
    EXPECT_LE(end, bucket.first_flag());
    EXPECT_EQ(bucket.first_flag() + static_cast<int64_t>(bucket.parameters.size()) + 1, bucket.elements);
  }
  EXPECT_EQ(seen, std::vector<int>(shapes.size(), 1));
}

TEST(GradientBuckets, FirstIsSmallAndTheRestKeepTheLimit) {
  const std::vector<GradientShape> shapes(64, {256, DType::kF32});  // 1 KiB each
  const auto buckets = plan_gradient_buckets(shapes, 2048, 8192);
  EXPECT_EQ(buckets[0].parameters.size(), 2u);
  for (size_t k = 1; k + 1 < buckets.size(); ++k) EXPECT_EQ(buckets[k].parameters.size(), 8u);
  EXPECT_EQ(buckets[0].parameters[0], 63);
}

TEST(GradientBuckets, AParameterAboveTheLimitHasABucketOfItsOwn) {
  const auto buckets = plan_gradient_buckets({{10, DType::kF32}, {100000, DType::kF32}, {10, DType::kF32}}, 1024, 1024);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].parameters, std::vector<int>{1});
}

}  // namespace
}  // namespace herd::ddp
