// Names a file or folder on the way to its path, `<name>.tmp.<pid>.<n>` beside it, and deletes what killed processes
// left under such names. No reader opens them. Both functions that delete throw kStorage where the system does not let
// the folder be listed. Threads: any.
#pragma once

#include <filesystem>

#include "herd/storage/file_system.h"

namespace herd {

std::filesystem::path temporary_name(const std::filesystem::path& path);  // returns another name at each call

// Returns the folder that a path is in.
std::filesystem::path folder_of(const std::filesystem::path& path);

// Deletes the files that killed processes left in a folder; temporaries of living processes of this machine stay.
// REQUIRES that no other machine writes there: the temporaries of its processes look stale here.
void remove_stale_temporaries(const std::filesystem::path& folder, FileSystem& files = FileSystem::system());

// Deletes the files and folders that killed processes left as temporaries of this path. REQUIRES the same.
void remove_stale_temporaries_of(const std::filesystem::path& path, FileSystem& files = FileSystem::system());

}  // namespace herd
