#include "herd/launch/nccl_paths.h"

#include <cstdlib>
#include <filesystem>

namespace herd::launch {

std::vector<std::string> nccl_paths(const std::vector<std::string>& packages) {
  if (const char* named = std::getenv("HERD_NCCL"); named != nullptr && *named != 0) return {named};
  std::vector<std::string> folders = packages, paths = {"libnccl.so.2"};
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr) {
    std::error_code none;
    for (const auto& python : std::filesystem::directory_iterator(std::filesystem::path(environment) / "lib", none))
      folders.push_back((python.path() / "site-packages").string());
  }
  for (const std::string& folder : folders) paths.push_back(folder + "/nvidia/nccl/lib/libnccl.so.2");
  return paths;
}

}  // namespace herd::launch
