#include "herd/storage/routing_folder.h"

#include <algorithm>
#include <system_error>

#include "herd/base/error.h"

namespace herd {

std::vector<std::filesystem::path> recorded_routing_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code refusal;
  for (const auto& entry : std::filesystem::directory_iterator(folder, refusal))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  if (files.empty())
    throw Error(Code::kBadConfig, "train.replay_routing = \"" + folder.string() +
                                      "\" has no routing that was recorded\n  fix: a folder that a run with "
                                      "train.record_routing has written");
  std::ranges::sort(files);
  return files;
}

}  // namespace herd
