// Defines what stands at a path, and what a folder holds. Nobody takes what may not be seen for what is not there: only
// a path where nothing is counts as nothing; whatever else the system refuses (no permission, a disk or a network that
// fails) throws kStorage with its reason and a fix. Links are followed. Threads: any.
#pragma once

#include <filesystem>
#include <vector>

namespace herd {

enum class FileKind { kNothing, kFile, kFolder, kOther };
FileKind kind_of(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_taken(const std::filesystem::path& path);  // a link that leads nowhere takes its name, too

// The paths in a folder, in no order; none where nothing is.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

}  // namespace herd
