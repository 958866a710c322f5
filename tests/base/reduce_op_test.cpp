#include "herd/base/reduce_op.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

TEST(ReduceOp, ComesBackFromItsName) {
  for (const ReduceOp op : kReduceOps) EXPECT_EQ(parse_reduce_op(reduce_op_name(op)), op) << reduce_op_name(op);
  EXPECT_ERROR(parse_reduce_op("mean"), Code::kBadConfig, "\"mean\"", "average", "premultiplied_sum");
}

TEST(ReduceOp, ServesTheTypesThatItsHeaderSays) {
  for (const DType dtype : kAllDTypes) {
    const bool bits = !is_floating(dtype), number = dtype != DType::kBool;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) EXPECT_EQ(supports(op, dtype), number);
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) EXPECT_TRUE(supports(op, dtype));
    for (const ReduceOp op : {ReduceOp::kAnd, ReduceOp::kOr, ReduceOp::kXor}) EXPECT_EQ(supports(op, dtype), bits);
    for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kPremultipliedSum})
      EXPECT_EQ(supports(op, dtype), is_floating(dtype));
  }
}

TEST(ReduceOp, IsRefusedByNameAndRule_WhereATypeHasNone) {
  EXPECT_ERROR(check_supported(ReduceOp::kAverage, DType::kI32), Code::kBadConfig, "average", "int32");
  check_supported(ReduceOp::kSum, DType::kI32);
}

}  // namespace
}  // namespace herd
