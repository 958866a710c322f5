#include "herd/launch/nccl_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/temporary_folder.h"

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

TEST(NcclPaths, TakeAnEmptyVariableForUnset) {
  const TemporaryFolder folder;  // VIRTUAL_ENV= is no environment in the working folder
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directories(folder / "lib/python3");
  std::filesystem::current_path(folder.path());
  for (const char* name : {"HERD_NCCL", "VIRTUAL_ENV"}) setenv(name, "", 1);
  EXPECT_THAT(nccl_paths({"/site"}), testing::ElementsAre("libnccl.so.2", "/site/nvidia/nccl/lib/libnccl.so.2"));
  for (const char* name : {"HERD_NCCL", "VIRTUAL_ENV"}) unsetenv(name);
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace herd::launch
