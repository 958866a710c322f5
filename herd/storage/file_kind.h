// Tells what is at a path, and what a folder holds. Only a path where nothing exists counts as nothing. Other refusals
// of the system (no permission, a disk or a network that fails) throw kStorage with its reason and a fix. Links are
// followed. Threads: any.
#pragma once

#include <filesystem>
#include <vector>

namespace herd {

enum class FileKind { kNothing, kFile, kFolder, kOther };
FileKind kind_of(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_taken(const std::filesystem::path& path);  // is also true for a link that leads nowhere

// Returns the paths in a folder, in no order; none where nothing exists.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

}  // namespace herd
