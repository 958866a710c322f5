#include "herd/bridge/split_float.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd {
namespace {

TEST(SplitFloatOfTensors, GivesTheNumbersBack_AlsoInPlacesOfLargerTensors) {
  const at::Tensor exact = at::randn({100}), again = at::zeros({100});
  const at::Tensor high = at::zeros({120}, at::kBFloat16), low = at::zeros({110}, at::kShort);
  split_float(exact.view({4, 25}), high.narrow(0, 20, 100), low.narrow(0, 10, 100));
  join_float(high.narrow(0, 20, 100), low.narrow(0, 10, 100), again);
  EXPECT_TRUE(again.equal(exact));
  EXPECT_TRUE(at::allclose(high.narrow(0, 20, 100).to(at::kFloat), exact, /*rtol=*/0x1p-8, /*atol=*/0));
  EXPECT_EQ(high.narrow(0, 0, 20).count_nonzero().item<int64_t>(), 0);
}

TEST(SplitFloatOfTensors, RefusesOtherTypesAndSizes) {
  const at::Tensor exact = at::zeros({10}), high = at::zeros({10}, at::kBFloat16), low = at::zeros({10}, at::kShort);
  EXPECT_THROW(split_float(exact, high.to(at::kHalf), low), Error);
  EXPECT_THROW(split_float(exact, high, low.to(at::kInt)), Error);
  EXPECT_THROW(split_float(exact, high, low.narrow(0, 0, 9)), Error);
  EXPECT_THROW(join_float(high, {}, exact), Error);
  EXPECT_THROW(join_float(at::zeros({20}, at::kBFloat16).slice(0, 0, 20, 2), low, exact), Error);
}

}  // namespace
}  // namespace herd
