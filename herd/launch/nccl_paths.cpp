#include "herd/launch/nccl_paths.h"

#include <filesystem>
#include <utility>

#include "herd/launch/environment.h"

namespace herd::launch {

std::vector<std::string> nccl_paths(const std::vector<std::string>& packages) {
  if (std::string named = process_variable("HERD_NCCL"); !named.empty()) return {std::move(named)};
  std::vector<std::string> folders = packages, paths = {"libnccl.so.2"};
  if (const std::string environment = process_variable("VIRTUAL_ENV"); !environment.empty()) {
    std::error_code none;
    for (const auto& python : std::filesystem::directory_iterator(std::filesystem::path(environment) / "lib", none))
      folders.push_back((python.path() / "site-packages").string());
  }
  for (const std::string& folder : folders) paths.push_back(folder + "/nvidia/nccl/lib/libnccl.so.2");
  return paths;
}

}  // namespace herd::launch
