#include "herd/kernels/device_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/kernels/host_kernels.h"

namespace herd::kernels {
namespace {

TEST(DeviceKernels, AreTheHostsOnTheCpu) { EXPECT_EQ(&device_kernels(DeviceKind::kCpu), &host_kernels()); }

TEST(DeviceKernels, AreThoseRegisteredLast_AndRefusedWithAReasonBefore) {
  try {
    device_kernels(DeviceKind::kExtension);
    FAIL() << "nothing is registered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
  }
  register_device_kernels(DeviceKind::kExtension, &host_kernels());
  EXPECT_EQ(&device_kernels(DeviceKind::kExtension), &host_kernels());
  register_device_kernels(DeviceKind::kExtension, nullptr);
}

}  // namespace
}  // namespace herd::kernels
