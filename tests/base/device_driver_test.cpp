#include "herd/base/device_driver.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd {
namespace {

TEST(DeviceDriver, SaysWhyThereIsNone) {
  try {
    device_driver(DeviceKind::kCuda);
  } catch (const Error& error) {  // where there is no GPU, or no nvcc when herd was built
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(error.message().find("\n  fix: "), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("CUDA"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace herd
