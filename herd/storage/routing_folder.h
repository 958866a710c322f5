// Finds the files of a folder into which a run with train.record_routing has written (docs/formats/routing.md).
// Threads: pure but for the folder.
#pragma once

#include <filesystem>
#include <vector>

namespace herd {

// Returns the files of train.replay_routing, by name. Throws kBadConfig where there is none.
std::vector<std::filesystem::path> recorded_routing_files(const std::filesystem::path& folder);

}  // namespace herd
