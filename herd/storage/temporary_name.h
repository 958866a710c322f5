// Defines what a file or folder is called on the way to its path, `<name>.tmp.<pid>.<n>` beside it, and how what killed
// processes left under such names is found. No reader opens them. Threads: any.
#pragma once

#include <filesystem>

#include "herd/storage/file_system.h"

namespace herd {

std::filesystem::path temporary_name(const std::filesystem::path& path);  // another one at each call

// The folder that a path is in.
std::filesystem::path folder_of(const std::filesystem::path& path);

// Deletes the files that killed processes left in a folder; temporaries of living processes of this machine stay.
// Throws kStorage where the system does not let the folder be listed; here and below.
void remove_stale_temporaries(const std::filesystem::path& folder, FileSystem& files = FileSystem::system());

// Deletes what they left beside one path on the way to it, files and folders.
void remove_stale_temporaries_of(const std::filesystem::path& path, FileSystem& files = FileSystem::system());

}  // namespace herd
