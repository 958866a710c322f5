#include "herd/train/check_finite.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <limits>

#include "herd/bridge/split_float.h"
#include "tests/support/expect_error.h"

namespace herd::train {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

TEST(CheckFinite, TakesFiniteNumbersOfAnyType_AndIntegers) {
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kInt})
    tensors.push_back(whole_tensor("w", at::arange(300, at::TensorOptions(type)).view({3, 100})));
  tensors.push_back(whole_tensor("empty", at::ones({0})));
  check_finite(tensors, "the checkpoint c");
}

TEST(CheckFinite, NamesTheTensor_HowManyAndWhereTheFirstIs) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t at : {0, 1, 99, 65535, 65536, 70000, 199999}) {  // over the pieces that are looked at together
      at::Tensor value = at::ones({200000}, type);
      value[at] = -kInfinity;
      value[199999] = kNan;
      const std::string expected = (at == 199999 ? "1 of the 200000 elements that this rank loads is"
                                                 : "2 of the 200000 elements that this rank loads are") +
                                   std::string(" NaN or infinite, the first, ") + (at == 199999 ? "NaN" : "infinity") +
                                   ", at [" + std::to_string(at / 100) + ", " + std::to_string(at % 100) + "]";
      const std::vector<NamedTensor> tensors = {whole_tensor("before", at::ones({5})),
                                                whole_tensor("w", value.view({2000, 100}))};
      EXPECT_ERROR(check_finite(tensors, "the checkpoint c"), Code::kBadConfig,
                   "tensor \"w\" of the checkpoint c is not finite", expected, "fix: checkpoint.resume");
    }
  }
}

TEST(CheckFinite, GivesTheIndexInTheWholeTensor_OfAShardAndOfAShardOfABox) {
  at::Tensor value = at::ones({10});
  value[4] = kNan;
  EXPECT_ERROR(check_finite({flat_shard("w", value, {20, 7}, 30)}, "c"), Code::kBadConfig, "at [4, 6]");
  const NamedTensor in_box{"w", value, {{{10, 14}, {2, 5}}, {1, 11}}, {20, 7}};
  EXPECT_ERROR(check_finite({in_box}, "c"), Code::kBadConfig, "at [11, 4]");
}

TEST(CheckFinite, SeesItInTheUpperHalvesOfSplitNumbers) {
  for (const float wrong : {kNan, kInfinity, std::numeric_limits<float>::signaling_NaN()}) {
    at::Tensor exact = at::ones({9});
    exact[8] = wrong;
    const at::Tensor upper = at::ones({9}, at::kBFloat16), lower = at::ones({9}, at::kShort);
    split_float(exact, upper, lower);
    EXPECT_ERROR(check_finite({whole_tensor("w", upper, lower)}, "c"), Code::kBadConfig, "1 of the 9", "at [8]");
  }
}

}  // namespace
}  // namespace herd::train
