#include "herd/launch/nccl_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace herd::launch {
namespace {

TEST(NcclPaths, AreTheEnvironments_OrThoseOfPackages) {
  setenv("HERD_NCCL", "/opt/libnccl.so.2", 1);
  EXPECT_THAT(nccl_paths({"/site"}), testing::ElementsAre("/opt/libnccl.so.2"));
  unsetenv("HERD_NCCL");
  setenv("VIRTUAL_ENV", "/none", 1);
  EXPECT_THAT(nccl_paths({"/site"}), testing::ElementsAre("libnccl.so.2", "/site/nvidia/nccl/lib/libnccl.so.2"));
  unsetenv("VIRTUAL_ENV");
}

}  // namespace
}  // namespace herd::launch
