#include "herd/convert/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "herd/kernels/half.h"

namespace herd::convert {
namespace {

TEST(Cast, RoundsTo16BitsAndComesBackExactly) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, 1.00390625f, 0.1f, -3.14159f, 6.1e-5f, 1e-7f, 65504.0f};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<std::byte> bytes(2 * values.size());
    ASSERT_EQ(from_float(values, dtype, bytes), -1);
    std::vector<float> back(values.size());
    to_float(dtype, bytes, back);
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = dtype == DType::kBF16 ? kernels::float_from_bf16(kernels::bf16_from_float(values[i]))
                                                   : kernels::float_from_fp16(kernels::fp16_from_float(values[i]));
      EXPECT_EQ(back[i], expected) << i;
      EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i])) << i;
    }
  }
}

TEST(Cast, NamesTheElementThatIsTooLarge_ButLetsInfinityAndNanPass) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, infinity, std::nanf(""), 70000, 3.4e38f};
  std::vector<std::byte> bytes(2 * values.size());
  EXPECT_EQ(from_float(values, DType::kF16, bytes), 3);
  EXPECT_EQ(from_float(values, DType::kBF16, bytes), 4) << "the largest floats round up to infinity";
}

}  // namespace
}  // namespace herd::convert
