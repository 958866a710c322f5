#include "herd/base/dtype.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

TEST(DType, ComesBackFromItsName) {
  for (const DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype) << dtype_name(dtype);
}

TEST(DType, NamesTheTypesThereAre_WhenANameIsUnknown) {
  EXPECT_ERROR(parse_dtype("float"), Code::kBadConfig, "\"float\"", "fp32", "bool");
}

}  // namespace
}  // namespace herd
